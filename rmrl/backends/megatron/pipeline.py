"""Micro-batches through a Megatron model: through its pipeline stages by megatron-core's schedules,
its tensor and context shares.

The head runs on response positions only. Under context parallelism each process computes its own
positions and the results are combined, so that the loss receives whole rows in every last-stage
process.

Shapes: B rows    S padded row length (packed: of all rows together)    N response tokens of
all rows, flat    H hidden    n those of the N that this process computes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rmrl.backends.base import TrainSettings
from rmrl.backends.megatron.attention import PackedRows
from rmrl.backends.megatron.core import get_forward_backward_func, parallel_state
from rmrl.backends.megatron.cpu import adapted
from rmrl.backends.megatron.heads import ValueHead
from rmrl.backends.megatron.logprobs import agreed_slice_elements, vocab_parallel_logprobs
from rmrl.backends.megatron.model import MegatronModel
from rmrl.backends.megatron.rows import Layout, Rows, lay_out
from rmrl.backends.own_tokens import of_all
from rmrl.backends.part import Loss
from rmrl.models.linear_head import kept_elements
from rmrl.models.logprobs import EntropyMode
from rmrl.models.packing import packs
from rmrl.types import TrainBatch

Finish = Callable[[TrainBatch, Tensor, Tensor | None], Any]
"""(micro-batch, outputs [N], entropies or energies [N] or None) -> result of the pass; called in
the last stage."""


class Pipeline:
    """One model's forward and backward passes. Both methods are called in all processes together,
    with equally many micro-batches in each. Processes that work on the same share get the same
    micro-batches."""

    def __init__(self, settings: TrainSettings, model: MegatronModel) -> None:
        self._model = model
        self._temperature = settings.temperature
        self._entropy: EntropyMode = "grad" if settings.actor.entropy_coeff else "detached"
        self._tensor_group: Any = parallel_state.get_tensor_model_parallel_group()
        virtual = model.sizes.virtual is not None
        self.packed = packs(settings.model, device=settings.device) or virtual
        """Always True under virtual stages: these exchange tensors of one shape, and rows packed up
        to one length waste the least."""

    def micro_batches(self, count: int) -> int:
        """How many micro-batches to run for `count`: virtual stages process them in groups, one per
        stage."""
        if self._model.sizes.virtual is None:
            return count
        group = self._model.sizes.pipeline
        return -(-count // group) * group

    def compute(self, micros: Sequence[TrainBatch], *, energies: bool = False) -> list[Tensor]:
        """See ModelPart.compute; in the last stage's processes, empty in the others."""
        for module in self._model.modules:
            module.eval()

        def finish(_: TrainBatch, outputs_N: Tensor, energies_N: Tensor | None) -> Tensor:
            return outputs_N if energies_N is None else torch.stack([outputs_N, energies_N])

        entropy: EntropyMode = "energy" if energies else "none"
        with torch.no_grad():
            return self._run(micros, finish, entropy=entropy, forward_only=True)

    def train(self, micros: Sequence[TrainBatch], loss: Loss) -> None:
        """Add all micro-batches' gradients, summed over data-parallel processes. `loss` is called
        in the last stage's."""
        for module in self._model.modules:
            module.train()

        def finish(
            micro: TrainBatch, outputs_N: Tensor, entropy_N: Tensor | None
        ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
            # megatron-core divides by the number of tokens in (loss, number, reports): not used.
            number = torch.ones((), dtype=torch.int, device=outputs_N.device)
            return loss(micro, outputs_N, entropy_N), number, {}

        self._run(micros, finish, entropy=self._entropy, forward_only=False)

    def _run(
        self,
        micros: Sequence[TrainBatch],
        finish: Finish,
        *,
        entropy: EntropyMode,
        forward_only: bool,
    ) -> list[Any]:
        """Run the schedule; what `finish` returns for each micro-batch, in the last stage."""
        if not micros:
            return []
        layout = self._layout(micros)
        sizes = self._model.sizes
        prepared = [(micro, lay_out(micro, layout, self._model.device)) for micro in micros]
        schedule = get_forward_backward_func(pp_size=sizes.pipeline, vp_size=sizes.virtual)
        with adapted():
            return schedule(
                forward_step_func=partial(self._step, finish, entropy),
                data_iterator=[iter(prepared) for _ in self._model.modules],
                model=list(self._model.modules),
                num_microbatches=len(prepared),
                seq_length=layout.length or 1,  # only read where all shapes are one
                micro_batch_size=1,
                forward_only=forward_only,
                collect_non_loss_data=forward_only,
            )

    def _layout(self, micros: Sequence[TrainBatch]) -> Layout:
        sizes = self._model.sizes
        multiple = sizes.tensor if sizes.sequence_parallel else 1
        if sizes.context > 1:
            multiple *= 2 * sizes.context
        layout = Layout(
            packed=self.packed,
            multiple=multiple,
            context=sizes.context,
            context_rank=parallel_state.get_context_parallel_rank(),
        )
        if sizes.virtual is None:
            return layout
        return layout.of_length(max(layout.packed_length(micro) for micro in micros))

    def _step(
        self,
        finish: Finish,
        entropy: EntropyMode,
        feed: Iterator[tuple[TrainBatch, Rows]],
        module: nn.Module,
    ) -> tuple[Tensor, Callable[..., Any]]:
        """Run one micro-batch through one stage. Returns (the next stage's input, function that the
        last stage applies to its output)."""
        micro, rows = next(feed)
        packed = None
        if rows.boundaries is not None:
            packed = PackedRows.of(rows.lengths, rows.boundaries)
        output = module(rows.input_ids_BS, rows.position_ids_BS, None, packed_seq_params=packed)

        def finished(hidden_BSH: Tensor, *, non_loss_data: bool = False) -> Any:  # noqa: ARG001
            return finish(micro, *self._outputs(rows, hidden_BSH, entropy))

        return output, finished

    def _outputs(
        self, rows: Rows, hidden_BSH: Tensor, entropy: EntropyMode
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities [N] (a critic's values) and entropies or energies [N], float32."""
        hidden_nH = hidden_BSH.flatten(0, 1).index_select(0, rows.positions_n)
        of_whole_rows = partial(
            of_all,
            index_n=rows.index_n,
            size=rows.size,
            group=parallel_state.get_context_parallel_group(),
        )
        if isinstance(self._model.head, ValueHead):
            return of_whole_rows(self._model.head.values(hidden_nH)), None
        shape = self._model.shape
        columns = shape.padded_vocab // self._model.sizes.tensor
        elements = agreed_slice_elements(hidden_nH.device, self._tensor_group)
        head = self._model.linear_head()
        logprobs_n, entropy_n = vocab_parallel_logprobs(
            hidden_nH.to(head.weight_VH.dtype),
            rows.targets_n,
            head=head,
            temperature=self._temperature,
            entropy=entropy,
            vocab=shape.vocab,
            group=self._tensor_group,
            slice_rows=max(1, elements // columns),
            kept_rows=kept_elements(elements) // columns,
        )
        if entropy_n is not None:
            entropy_n = of_whole_rows(entropy_n)
        return of_whole_rows(logprobs_n), entropy_n

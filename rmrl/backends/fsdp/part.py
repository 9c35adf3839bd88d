"""FSDPPart: one process's share of a model under fsdp or fsdp2. Implements
rmrl.backends.part.ModelPart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rmrl.backends import process_group
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.fsdp import checkpoint, compat
from rmrl.backends.fsdp.build import attention_of, build_model, build_optimizer
from rmrl.backends.fsdp.offload import model_offloader, optimizer_offloader
from rmrl.backends.micro_batches import Limits, logprob_limits, update_limits
from rmrl.backends.objective import ResponseTokens, response_tokens, shared_tokens
from rmrl.backends.own_tokens import of_all
from rmrl.backends.part import Loss
from rmrl.backends.prompt_units import Sharing
from rmrl.backends.row_assignment import row_assignment
from rmrl.inference.weights.parts import Parts
from rmrl.models.loading import torch_dtype
from rmrl.models.logprobs import EntropyMode
from rmrl.models.lora import is_adapter, merged_name, merged_parameters, own_parameters
from rmrl.models.packing import FLEX_MULTIPLE, packs, set_attention
from rmrl.models.sequence_parallel import Slices
from rmrl.models.stored_tensors import StoredTensors
from rmrl.types import TrainBatch

_INNER = "model."
"""Prefix of the Hugging Face model's parameters in ResponseModel and ValueModel."""


class FSDPPart:
    """A part whose process has its own rows, or shares rows with its neighbours, where the first
    process returns results."""

    tensor_format = checkpoint.FORMAT

    def __init__(self, settings: TrainSettings, process: ProcessSettings) -> None:
        self._world_size = process.world_size
        self.device = process_group.join_group(process, settings.device)
        rows = row_assignment(settings.trained, process.world_size, section=settings.section)
        self.answers = process.rank in rows.output_ranks
        sharing = settings.trained.fsdp_config.ulysses_sequence_parallel_size
        self._slices = None
        if sharing > 1:
            self._slices = Slices.of(process_group.neighbours(sharing, process.timeout_s))
        trains = settings.role != "ref"
        self._adapted = trains and settings.model.lora_rank > 0
        torch.manual_seed(settings.seed + process.rank)
        self.model, model = build_model(settings, self.device)
        self._settings = settings = replace(settings, model=model)
        self.packed = sharing > 1 or packs(model, device=settings.device)
        self.language_model: PreTrainedModel = cast("Any", self.model).model
        fsdp = settings.trained.fsdp_config
        self.compute_dtype = torch_dtype(
            fsdp.param_dtype or fsdp.model_dtype,
            key=f"{settings.section}.fsdp_config.param_dtype",
        )
        name = attention_of(settings, self.language_model, self.compute_dtype)
        set_attention(self.language_model, name)
        self._stored = StoredTensors(self.language_model)
        self._multiple = FLEX_MULTIPLE if name == "flex_attention" else sharing
        self._optimizer = build_optimizer(settings, self.model) if trains else None
        self._model_offloader = model_offloader(self.model, fsdp, self.device)
        self._optimizer_offloader = optimizer_offloader(self._optimizer, fsdp, self.device)

    def micro_batches(self, count: int) -> int:
        """The maximum over ranks: every forward pass is a collective."""
        return process_group.all_max(count)

    def all_sum(self, values: Sequence[float]) -> list[float]:
        if not self.answers:
            values = [0.0] * len(values)
        return process_group.all_sum(values)

    def total(self, sums: Mapping[str, float]) -> dict[str, float]:
        return dict(zip(sums, self.all_sum(list(sums.values())), strict=True))

    # --- forward, backward, step

    def compute(self, micros: Sequence[TrainBatch], *, energies: bool = False) -> Iterator[Tensor]:
        self.model.eval()
        limits = logprob_limits(self._settings)
        with torch.no_grad():
            for micro in micros:
                outputs_N, energies_N = self._forward(
                    micro, limits, "energy" if energies else "none"
                )
                if self.answers:
                    yield outputs_N if energies_N is None else torch.stack([outputs_N, energies_N])
        compat.free_gathered(self.model)

    def train(self, micros: Sequence[TrainBatch], loss: Loss) -> None:
        self.model.train()
        entropy: EntropyMode = "grad" if self._settings.actor.entropy_coeff else "detached"
        limits = update_limits(self._settings.trained, section=self._settings.section)
        for micro in micros:
            outputs_N, entropy_N = self._forward(micro, limits, entropy)
            # FSDP averages gradients over processes; the parts of the loss are to be added up.
            (loss(micro, outputs_N, entropy_N) * self._world_size).backward()

    def sharing(self, limits: Limits) -> Sharing | None:
        if not self._settings.model.share_prompts or limits.rows is not None:
            return None
        hidden = self.language_model.config.get_text_config().hidden_size
        return Sharing(hidden=hidden, limit=limits.tokens)

    def _tokens(self, micro: TrainBatch, limits: Limits) -> ResponseTokens:
        """The micro-batch as the model's input; `limits` are those by which it was cut."""
        tokens = None
        sharing = self.sharing(limits)
        if sharing is not None:
            tokens = shared_tokens(micro, self.device, sharing, own=self._settings.own_tokens)
        return tokens or response_tokens(
            micro,
            self.device,
            packed=self.packed,
            multiple=self._multiple,
            slices=self._slices,
            own=self._settings.own_tokens,
        )

    def _forward(
        self, micro: TrainBatch, limits: Limits, entropy: EntropyMode
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities [N] (a critic's values) and entropies or energies [N], float32."""
        tokens = self._tokens(micro, limits)
        of_whole_rows = partial(
            of_all,
            index_n=tokens.index_n,
            size=len(micro.response_mask.values),
            group=self._slices and self._slices.group,
        )
        if self._settings.role == "critic":
            values = self.model(tokens.input_ids_BS, tokens.positions_N, tokens.layout)
            return of_whole_rows(values), None
        logprobs, further = self.model(
            tokens.input_ids_BS,
            tokens.positions_N,
            tokens.targets_N,
            entropy,
            tokens.layout,
        )
        if further is not None:
            further = of_whole_rows(further)
        return of_whole_rows(logprobs), further

    def step(self, lr: float) -> float:
        assert self._optimizer is not None
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        norm = compat.clip_gradients(self.model, self._settings.trained.grad_clip)
        if math.isfinite(norm):
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm

    # --- weights and checkpoints

    def manifest(self, dtype: torch.dtype | None) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        empty: dict[str, Tensor] = {}
        for name, (own_dtype, shape) in compat.headers(self.model).items():
            if is_adapter(name):
                continue
            if dtype is not None and own_dtype.is_floating_point:
                own_dtype = dtype
            tensor = torch.empty(shape, dtype=own_dtype, device="meta")
            empty[merged_name(name.removeprefix(_INNER))] = tensor
        stored = self._stored.all([*empty.items(), *compat.buffers(self.language_model)])
        return [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in stored]

    def weights(self, dtype: torch.dtype | None) -> Iterator[tuple[str, Tensor]]:
        shards = self._shards()
        if self._adapted:
            named = merged_parameters(
                shards, self._settings.model, gather=compat.full_tensor, dtype=dtype
            )
        else:
            named = compat.full_tensors(shards.items(), dtype)
        yield from self._stored.all(named)
        yield from self._stored.all(compat.buffers(self.language_model))

    def parts(self) -> dict[str, Parts]:
        if self._adapted:
            return {}  # merging gathers
        held = {name: self._parts_of(name, tensor) for name, tensor in self._shards().items()}
        return {name: parts for name, parts in held.items() if parts is not None}

    def local_weights(self, dtype: torch.dtype | None) -> Iterator[tuple[str, Tensor]]:
        if self._adapted:
            yield from self.weights(dtype)
            return
        for name, tensor in self._shards().items():
            if self._parts_of(name, tensor) is None:
                yield from self._stored.of(name, compat.full_tensor(tensor, dtype)).items()
            else:
                yield name, compat.local_part(tensor, dtype)
        yield from self._stored.all(compat.buffers(self.language_model))

    def _parts_of(self, name: str, tensor: Tensor) -> Parts | None:
        """Return how the processes hold a tensor. None also where files hold it otherwise."""
        empty = torch.empty(tensor.shape, device="meta")
        if name not in self._stored.of(name, empty):
            return None
        return compat.parts_of(tensor)

    def adapter(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the adapter's whole tensors and the head, as `weights` does, by peft's names."""
        return own_parameters(self._shards(), gather=compat.full_tensor)

    def _shards(self) -> dict[str, Tensor]:
        return {
            name.removeprefix(_INNER): tensor for name, tensor in compat.shards(self.model).items()
        }

    def save_tensors(self, folder: Path) -> None:
        checkpoint.save_tensors(folder, self.model, self._optimizer)

    def load_tensors(self, folder: Path) -> None:
        checkpoint.load_tensors(folder, self.model, self._optimizer)

    def move(self, device: torch.device) -> None:
        if self.device.type == "cpu":
            return  # everything is in host memory already
        if self._model_offloader is not None:
            self._model_offloader.move(device)
        compat.settle()

    def move_optimizer(self, device: torch.device) -> None:
        if self.device.type == "cpu" or self._optimizer_offloader is None:
            return
        self._optimizer_offloader.move(device)
        if device.type == "cpu":
            compat.settle()

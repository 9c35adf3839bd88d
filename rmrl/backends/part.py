"""ModelPart: one process's share in one model, and everything in which FSDP and Megatron differ.
rmrl.backends.engine drives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rmrl.backends.micro_batches import Limits
from rmrl.backends.prompt_units import Sharing
from rmrl.inference.weights.parts import Parts
from rmrl.types import TrainBatch

Loss = Callable[[TrainBatch, Tensor, Tensor | None], Tensor]
"""(micro-batch, log-probabilities or values [N], entropies [N] or None) -> this micro-batch's part
of the step's loss, a scalar with a gradient. The parts of all micro-batches of all shares add up to
the loss, so gradients are summed, never averaged."""


class ModelPart(Protocol):
    """Every method but the properties and `manifest` is called in all processes together."""

    @property
    def device(self) -> torch.device: ...

    @property
    def packed(self) -> bool:
        """A micro-batch's rows are packed into one sequence, so that it costs what its rows cost
        together."""
        ...

    def sharing(self, limits: Limits) -> Sharing | None:
        """When responses to one prompt in a micro-batch with these limits are computed as one
        sequence (rmrl.models.shared_prompts). None: never."""
        ...

    @property
    def answers(self) -> bool:
        """True if this process's results stand for its rows; where several processes work on one
        share a single one answers."""
        ...

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """The dtype in which the model computes with its weights. None: as `weights(None)` has
        it."""
        ...

    @property
    def language_model(self) -> PreTrainedModel:
        """Read for its configs only; may be on the meta device."""
        ...

    def micro_batches(self, count: int) -> int:
        """How many micro-batches to run when this process has `count`: the maximum over ranks,
        because every forward pass is a collective."""
        ...

    def all_sum(self, values: Sequence[float]) -> list[float]:
        """Sums over the shares, the same in every process; values from processes that do not answer
        are left out."""
        ...

    def total(self, sums: Mapping[str, float]) -> dict[str, float]:
        """`all_sum` by name. Processes that do not answer may lack names."""
        ...

    def compute(self, micros: Sequence[TrainBatch], *, energies: bool = False) -> Iterator[Tensor]:
        """Log-probabilities (a critic's values), float32 [N], for each micro-batch, without
        gradient. Nothing where `answers` is False. `energies`: [2, N], the tokens' energies below
        their log-probabilities."""
        ...

    def train(self, micros: Sequence[TrainBatch], loss: Loss) -> None:
        """Add all micro-batches' gradients. Calls `loss` in processes that have outputs, answering
        or not."""
        ...

    def step(self, lr: float) -> float:
        """Make one optimizer step at this rate after clipping and return the gradient norm before
        clipping, the same in every process.

        A norm that is not finite changes nothing. Gradients are cleared afterwards.
        """
        ...

    def manifest(self, dtype: torch.dtype | None) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        """(name, dtype, shape) for each tensor in `weights`, in order; needs no other process."""
        ...

    def weights(self, dtype: torch.dtype | None) -> Iterator[tuple[str, Tensor]]:
        """Yield whole tensors by their Hugging Face names, one at a time. Every process must run
        the iterator to its end."""
        ...

    def parts(self) -> dict[str, Parts]:
        """Tensors in `weights` that the processes hold in equal parts."""
        ...

    def local_weights(self, dtype: torch.dtype | None) -> Iterator[tuple[str, Tensor]]:
        """Yield what `weights` yields, but this process's part where `parts` has the tensor."""
        ...

    @property
    def tensor_format(self) -> str:
        """The format in which `save_tensors` writes files. A name in
        rmrl.backends.export.READERS."""
        ...

    def save_tensors(self, folder: Path) -> None:
        """Write parameters and optimizer state to the empty `folder`."""
        ...

    def load_tensors(self, folder: Path) -> None:
        """Undo `save_tensors`, also under another layout. Raises CheckpointError for a torn
        checkpoint, or another model's."""
        ...

    def move(self, device: torch.device) -> None:
        """Move parameters and gradients, as far as the settings name them, to host memory or back
        to the device."""
        ...

    def move_optimizer(self, device: torch.device) -> None:
        """Move the optimizer's state, where the settings name it, to host memory or to the device.
        Does nothing where it is there already."""
        ...

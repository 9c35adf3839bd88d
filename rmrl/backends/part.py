"""ModelPart: one process's share of one model, and all that FSDP and Megatron do differently.
rmrl.backends.engine drives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rmrl.types import TrainBatch

Loss = Callable[[TrainBatch, Tensor, Tensor | None], Tensor]
"""(micro-batch, log-probabilities or values [N], entropies [N] or None) -> this micro-batch's part
of the step's loss, a scalar with a
gradient. Of all micro-batches of all shares together the parts add up to the loss, so gradients are
  summed, never averaged."""


class ModelPart(Protocol):
    """Every method but the properties and `manifest` is called in all processes together."""

    @property
    def device(self) -> torch.device: ...

    @property
    def packed(self) -> bool:
        """Rows of a micro-batch are packed into one sequence, so that its cost is the sum of its
        rows."""
        ...

    @property
    def answers(self) -> bool:
        """Whether this process's results stand for its share of the rows; of several that work on
        one share a single one answers."""
        ...

    @property
    def language_model(self) -> PreTrainedModel:
        """Read for its configs only; may be on the meta device."""
        ...

    def micro_batches(self, count: int) -> int:
        """How many micro-batches every process runs when this one has `count`: all run as many."""
        ...

    def all_sum(self, values: Sequence[float]) -> list[float]:
        """Sums over the shares: what processes that do not answer give is left out. The same in
        every process."""
        ...

    def total(self, sums: Mapping[str, float]) -> dict[str, float]:
        """As `all_sum`, by name; processes that do not answer may lack names."""
        ...

    def compute(self, micros: Sequence[TrainBatch]) -> Iterator[Tensor]:
        """Log-probabilities (a critic's values), float32 [N], of each micro-batch, without
        gradient; nothing where `answers` is False."""
        ...

    def train(self, micros: Sequence[TrainBatch], loss: Loss) -> None:
        """Add the gradients of all micro-batches. Calls `loss` in processes that have outputs,
        answering or not."""
        ...

    def step(self, lr: float) -> float:
        """One optimizer step at this rate after clipping; returns the gradient norm before
        clipping, the same in every process.

        A norm that is not finite changes nothing. Gradients are gone afterwards.
        """
        ...

    def manifest(self, dtype: torch.dtype | None) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        """(name, dtype, shape) of what `weights` yields, in its order; needs no other process."""
        ...

    def weights(self, dtype: torch.dtype | None) -> Iterator[tuple[str, Tensor]]:
        """Whole tensors by their Hugging Face names, one at a time; every process must run it to
        its end."""
        ...

    @property
    def tensor_format(self) -> str:
        """Of what `save_tensors` writes; a name of rmrl.backends.export.READERS."""
        ...

    def save_tensors(self, folder: Path) -> None:
        """Parameters and optimizer state into the empty `folder`."""
        ...

    def load_tensors(self, folder: Path) -> None:
        """Undo `save_tensors`, also under another layout. Raises CheckpointError for a torn one, or
        one of another model."""
        ...

    def move(self, device: torch.device) -> None:
        """Bring what the settings say is offloaded to host memory, or back to the device."""
        ...

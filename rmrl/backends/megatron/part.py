"""MegatronPart: one process's share of a model under megatron. Implements
rmrl.backends.part.ModelPart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from rmrl.backends import process_group
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.megatron import checkpoint, gather
from rmrl.backends.megatron.groups import join
from rmrl.backends.megatron.load import load_weights
from rmrl.backends.megatron.model import build_model, language_model
from rmrl.backends.megatron.offload import offloaders, optimizer_offloader
from rmrl.backends.megatron.optimizer import Optimizer
from rmrl.backends.megatron.pipeline import Pipeline
from rmrl.backends.micro_batches import Limits
from rmrl.backends.offload import Offloader
from rmrl.backends.part import Loss
from rmrl.backends.prompt_units import Sharing
from rmrl.backends.row_assignment import row_assignment
from rmrl.inference.weights.parts import Parts
from rmrl.types import TrainBatch


class MegatronPart:
    """Processes along the tensor, context and pipeline axes work on the same rows. The first ones
    in the last stage answer."""

    tensor_format = checkpoint.FORMAT

    def __init__(self, settings: TrainSettings, process: ProcessSettings) -> None:
        self._settings = settings
        sizes, self.device = join(settings, process)
        output_ranks = row_assignment(
            settings.trained, process.world_size, section=settings.section
        ).output_ranks
        self.answers = process.rank in output_ranks
        self._first_answering = output_ranks[0]
        torch.manual_seed(settings.seed + process.rank)
        self.language_model = language_model(settings)
        self.model = build_model(settings, sizes, self.device)
        load_weights(self.model, settings)
        self._optimizer = None if settings.role == "ref" else Optimizer.build(settings, self.model)
        self._pipeline = Pipeline(settings, self.model)
        megatron = settings.trained.megatron
        self._offloaders = offloaders(self.model, megatron)
        self._optimizer_offloader: Offloader | None = None
        if megatron.optimizer_offload and self._optimizer is not None:
            self._optimizer_offloader = optimizer_offloader(self.model, self._optimizer)

    @property
    def compute_dtype(self) -> torch.dtype | None:
        return None

    def sharing(self, limits: Limits) -> Sharing | None:
        del limits
        return None

    @property
    def packed(self) -> bool:
        return self._pipeline.packed

    def micro_batches(self, count: int) -> int:
        """The maximum over ranks: experts exchange tokens between data-parallel processes."""
        return self._pipeline.micro_batches(process_group.all_max(count))

    def all_sum(self, values: Sequence[float]) -> list[float]:
        counted = [value if self.answers else 0.0 for value in values]
        return process_group.all_sum(counted)

    def total(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Sums by name. The names come from the first process that answers."""
        box = [list(sums)]
        dist.broadcast_object_list(box, src=self._first_answering, device=torch.device("cpu"))
        names: list[str] = box[0]
        values = [sums.get(name, 0.0) for name in names]
        return dict(zip(names, self.all_sum(values), strict=True))

    # --- forward, backward, step

    def compute(self, micros: Sequence[TrainBatch], *, energies: bool = False) -> Iterator[Tensor]:
        """Run all micro-batches together: a pipeline is only full with several under way."""
        outputs = self._pipeline.compute(micros, energies=energies)
        if not self.answers:
            return iter([])
        return iter(outputs)

    def train(self, micros: Sequence[TrainBatch], loss: Loss) -> None:
        self._pipeline.train(micros, loss)

    def step(self, lr: float) -> float:
        assert self._optimizer is not None
        return self._optimizer.step(lr, self._settings.trained.grad_clip)

    # --- weights and checkpoints

    def manifest(self, dtype: torch.dtype | None) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        return gather.manifest(self.model, dtype)

    def weights(self, dtype: torch.dtype | None) -> Iterator[tuple[str, Tensor]]:
        return gather.whole_tensors(self.model, dtype)

    def parts(self) -> dict[str, Parts]:
        return {}  # megatron-core joins matrices that a checkpoint has apart

    def local_weights(self, dtype: torch.dtype | None) -> Iterator[tuple[str, Tensor]]:
        return self.weights(dtype)

    def save_tensors(self, folder: Path) -> None:
        checkpoint.save_tensors(folder, self.model, self._optimizer)

    def load_tensors(self, folder: Path) -> None:
        checkpoint.load_tensors(folder, self.model, self._optimizer)

    def move(self, device: torch.device) -> None:
        if self.device.type == "cpu":  # everything is in host memory already
            return
        for offloader in self._offloaders:
            offloader.move(device)
        torch.cuda.empty_cache()

    def move_optimizer(self, device: torch.device) -> None:
        if self.device.type == "cpu" or self._optimizer_offloader is None:
            return
        self._optimizer_offloader.move(device)
        if device.type == "cpu":
            torch.cuda.empty_cache()

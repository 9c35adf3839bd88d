"""What one training process holds: the policy's engine and, where asked for, the frozen reference beside it."""

from __future__ import annotations

from collections.abc import Sequence

from rmrl.backends import TRAIN_ENGINES
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.types import Metrics, Ragged, TrainBatch


class TrainWorker:
    """Built inside its own process. Every process of the group is called with its own rows, at the same time."""

    def __init__(self, actor: TrainSettings, reference: TrainSettings | None, process: ProcessSettings) -> None:
        engine = TRAIN_ENGINES[actor.actor.strategy]
        self._actor = engine(actor, process)
        self._reference = engine(reference, process) if reference is not None else None

    def logprobs(self, batch: TrainBatch) -> Ragged:
        return self._actor.logprobs(batch)

    def reference_logprobs(self, batch: TrainBatch) -> Ragged:
        assert self._reference is not None, "the run was built without a reference policy"
        return self._reference.logprobs(batch)

    def update(self, mini_batches: Sequence[TrainBatch]) -> Metrics:
        return self._actor.update(mini_batches)

    def export_weights(self, path: str, dtype: str) -> int:
        """Rank 0 writes the weights for the rollout engines; returns bytes written (0 elsewhere)."""
        return self._actor.export_weights(path, dtype)

    def save(self, path: str) -> None:
        self._actor.save(path)

    def save_hf(self, path: str) -> None:
        self._actor.save_hf(path)

    def load(self, path: str) -> None:
        self._actor.load(path)

    def offload(self) -> None:
        """Free device memory between training phases (CUDA)."""
        for engine in (self._actor, self._reference):
            if engine is not None:
                engine.offload()

    def onload(self) -> None:
        for engine in (self._actor, self._reference):
            if engine is not None:
                engine.onload()

    def memory_bytes(self) -> int:
        return self._actor.memory_bytes()

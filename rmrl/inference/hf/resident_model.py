"""A torch module that can be put to sleep and woken, for engines without their own memory
management."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from rmrl.errors import InfrastructureError
from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.inference.vllm.worker_extension import resident_bytes


class ResidentModel:
    """Owns the module that `load` returns (on `spec.device`), with a `RewardEngine`'s states."""

    def __init__(self, spec: EngineSpec, load: Callable[[], Any]) -> None:
        self._spec = spec
        self._load = load
        self._model: Any = None
        self._asleep = 0

    def start(self) -> None:
        """Seed torch, set its threads and load. Raises what `load` raises."""
        torch.set_num_threads(max(1, self._spec.threads))
        torch.manual_seed(self._spec.seed)
        self._model = self._load()

    def awake(self) -> Any:
        """Return the module. Raises InfrastructureError when it is asleep or not loaded."""
        if self._model is None or self._asleep:
            raise InfrastructureError(
                f"the engine of '{self._spec.path}' is {self.state()}; start or wake it first"
            )
        return self._model

    def sleep(self, level: int) -> None:
        """Move the weights to host memory (1) or drop them (2)."""
        if level >= 2:
            self._model = None
        elif self._model is not None:
            self._model.to("cpu")
        self._asleep = max(self._asleep, level)
        gc.collect()
        if self._spec.device == "cuda":
            torch.cuda.empty_cache()

    def wake(self) -> None:
        """Undo `sleep`. After level 2 the checkpoint is loaded again."""
        if self._model is None:
            self._model = self._load()
        else:
            self._model.to(self._spec.device)
        self._asleep = 0

    def state(self) -> str:
        """Return "cold", "awake" or "asleep <level>"."""
        if self._asleep:
            return f"asleep {self._asleep}"
        if self._model is None:
            return "cold"
        return "awake"

    def resident_bytes(self) -> int:
        if self._spec.device == "cuda":
            return torch.cuda.memory_reserved()
        return resident_bytes()

"""A torch module that can be put away and brought back: what the engines without memory management
of their own share."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from rmrl.errors import InfrastructureError
from rmrl.inference.scoring_base import EngineSpec
from rmrl.inference.vllm.worker_extension import resident_bytes


class HeldModel:
    """Holds what `load` returns (a module on `spec.device`), with the states of a
    `RewardEngine`."""

    def __init__(self, spec: EngineSpec, load: Callable[[], Any]) -> None:
        self._spec = spec
        self._load = load
        self._model: Any = None
        self._asleep = 0

    def start(self) -> None:
        """Seed torch, set its threads and load; raises what `load` raises."""
        torch.set_num_threads(max(1, self._spec.threads))
        torch.manual_seed(self._spec.seed)
        self._model = self._load()

    def awake(self) -> Any:
        """The module. Raises InfrastructureError when it is not there to be used."""
        if self._model is None or self._asleep:
            raise InfrastructureError(
                f"the engine of '{self._spec.path}' is {self.state()}; start or wake it first"
            )
        return self._model

    def sleep(self, level: int) -> None:
        """1: weights to host memory; 2: weights dropped."""
        if level >= 2:
            self._model = None
        elif self._model is not None:
            self._model.to("cpu")
        self._asleep = max(self._asleep, level)
        gc.collect()
        if self._spec.device == "cuda":
            torch.cuda.empty_cache()

    def wake(self) -> None:
        """Undo `sleep`; after level 2 the checkpoint is read again."""
        if self._model is None:
            self._model = self._load()
        else:
            self._model.to(self._spec.device)
        self._asleep = 0

    def state(self) -> str:
        """ "cold", "awake" or "asleep <level>"."""
        if self._asleep:
            return f"asleep {self._asleep}"
        if self._model is None:
            return "cold"
        return "awake"

    def resident_bytes(self) -> int:
        """As in `RewardEngine`."""
        if self._spec.device == "cuda":
            return torch.cuda.memory_reserved()
        return resident_bytes()

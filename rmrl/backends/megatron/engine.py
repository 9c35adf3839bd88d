"""MegatronEngine: training under actor.strategy=megatron."""

from __future__ import annotations

from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.engine import TrainingEngine
from rmrl.backends.megatron import groups
from rmrl.backends.megatron.part import MegatronPart


class MegatronEngine(TrainingEngine):
    """Models cut along layers, matrices and sequences; data-parallel copies have their own rows."""

    def __init__(self, settings: TrainSettings, process: ProcessSettings) -> None:
        super().__init__(settings, process, MegatronPart)

    def close(self) -> None:
        """Leave megatron-core's groups and the process group. Call once per process, after its last
        engine."""
        groups.leave()
        super().close()

"""FSDPEngine: training under actor.strategy=fsdp and fsdp2."""

from __future__ import annotations

from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.engine import TrainingEngine
from rmrl.backends.fsdp.part import FSDPPart


class FSDPEngine(TrainingEngine):
    """Models sharded over all processes. Each process has its own rows."""

    def __init__(self, settings: TrainSettings, process: ProcessSettings) -> None:
        super().__init__(settings, process, FSDPPart)

"""Speed, memory and traces of a run's steps, beside its stages' seconds."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rmrl.cluster.watch import loss
from rmrl.trainer.policy import Models
from rmrl.trainer.rollouts import RolloutPool
from rmrl.trainer.throughput import Throughput
from rmrl.types import Metrics

_log = logging.getLogger(__name__)


class Measures:
    """Measurements of the present step. See rmrl.telemetry.names for the metrics."""

    def __init__(
        self,
        models: Models,
        rollouts: RolloutPool,
        *,
        throughput: Throughput,
        epochs: int,
        profile_steps: Sequence[int],
        profile_folder: Path,
    ) -> None:
        """`epochs`: passes of an update over its rows."""
        self.throughput = throughput
        self._epochs = epochs
        self._models = models
        self._rollouts = rollouts
        self._profile_steps = frozenset(profile_steps)
        self._profile_folder = profile_folder
        self._memory: Metrics = {}

    async def phase_ended(self, phase: str) -> None:
        """Note a training phase's memory. Not after a loss of the cluster: there are better
        uses of the time that is left."""
        if loss() is None:
            self._memory |= await self._models.phase_memory(phase)

    @asynccontextmanager
    async def profiled_if_due(self, step: int) -> AsyncIterator[None]:
        """Write a trace of every training process where `step`, which the block trains, is one of
        trainer.profile_steps."""
        if step not in self._profile_steps:
            yield
            return
        await self._models.start_profile()
        yield
        folder = self._profile_folder
        await self._models.write_profile(folder, step)
        _log.info(f"traces of step {step} are in {folder}; https://ui.perfetto.dev displays them")

    def take(self, times: Mapping[str, float], *, generated: int, trained: int) -> Metrics:
        """Return the metrics of the step and begin the next one.

        `times`: `time/<stage>_s` of the step; `generated`: response tokens; `trained`: tokens of
        the rows that trained.
        """
        out = self._models.take_durations() | self._rollouts.durations.take() | self._memory
        self._memory = {}
        device = self._models.device_name
        return out | self.throughput.metrics(
            times, generated=generated, trained=trained * self._epochs, device=device
        )

"""Watch a server's engines, and start lost engines again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from typing import Any

from rmrl.api import EnginePlan, Scorer
from rmrl.errors import ClusterLostError, InfrastructureError, RmrlError, StallError
from rmrl.serve.metrics import ServerMetrics
from rmrl.serve.problems import one_line

_log = logging.getLogger(__name__)

_PROBE_TIMEOUT_S = 5.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


class EngineKeeper:
    """Probes the engines' processes, starts lost ones again and puts idle ones away."""

    def __init__(self, scorer: Scorer, metrics: ServerMetrics, *, every_s: float) -> None:
        self._scorer = scorer
        self._residency = scorer.residency
        self._metrics = metrics
        self._every_s = every_s
        self._pauses: dict[Hashable, float] = {}
        """Seconds before the next start of an engine that could not be started."""
        self._next_start: dict[Hashable, float] = {}
        self._starts: dict[Hashable, asyncio.Task[None]] = {}

    async def load_all(self) -> None:
        """Start every engine once, so that an engine that cannot start ends the server at its
        start."""
        for plan in self._residency.plans:
            await self._residency.load(plan.key)
        await self._scorer.settle()
        self._metrics.engines(self._scorer.take_metrics())

    def lost(self) -> list[str]:
        """Return a sentence for each lost engine."""
        return [
            f"the engine of {label} is lost and being started again: {one_line(why)}"
            for label, why in self._residency.lost.items()
        ]

    def table(self) -> list[dict[str, Any]]:
        """Return each engine with its present state: awake, asleep, unloaded or lost."""
        states = self._residency.states
        lost = self._residency.lost
        rows: list[dict[str, Any]] = []
        for plan in self._residency.plans:
            row = engine_row(plan)
            row["state"] = "lost" if plan.label in lost else states[plan.label]
            if plan.label in lost:
                row["detail"] = one_line(lost[plan.label])
            rows.append(row)
        return rows

    async def watch(self) -> None:
        """Look at the engines again and again, until cancelled."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(self._every_s)
        finally:
            for task in self._starts.values():
                task.cancel()
            await asyncio.gather(*self._starts.values(), return_exceptions=True)

    async def look(self) -> None:
        """Look once. Work that fails is tried again with the next look."""
        try:
            await self._residency.probe(timeout_s=_PROBE_TIMEOUT_S)
            self.start_lost()
            await self._scorer.settle()
        except ClusterLostError:
            raise
        except (InfrastructureError, StallError) as error:
            _log.warning(f"an engine could not be looked after: {one_line(error)}")
        self._metrics.engines(self._scorer.take_metrics())
        self._metrics.states(self.table())

    def start_lost(self) -> None:
        """Start lost engines again, each after its pause."""
        lost = self._residency.lost
        now = asyncio.get_running_loop().time()
        for plan in self._residency.plans:
            running = plan.key in self._starts and not self._starts[plan.key].done()
            if plan.label in lost and not running and self._next_start.get(plan.key, 0.0) <= now:
                self._starts[plan.key] = asyncio.create_task(self._start(plan))

    async def _start(self, plan: EnginePlan) -> None:
        _log.warning(f"the engine of {plan.label} is lost; starting it again")
        try:
            await self._residency.revive(plan.key)
        except RmrlError as error:
            pause_s = self._pauses.get(plan.key, _FIRST_PAUSE_S)
            _log.warning(
                f"the engine of {plan.label} did not start: {one_line(error)}; next try in"
                f" {pause_s:g} s"
            )
            self._next_start[plan.key] = asyncio.get_running_loop().time() + pause_s
            self._pauses[plan.key] = min(2 * pause_s, _LONGEST_PAUSE_S)
        else:
            self._pauses.pop(plan.key, None)


def engine_row(plan: EnginePlan) -> dict[str, Any]:
    """Return an engine's configured values."""
    return {
        "name": plan.label,
        "engine": plan.spec.name,
        "model": plan.spec.path,
        "device": plan.spec.device,
        "devices": list(plan.devices),
        "pool": plan.place,
        "replicas": plan.replicas,
        "residency": plan.residency,
        "rewards": list(plan.rewards),
    }

"""Where the processes of a run are started, how many threads they get, and that all of several start or none."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from rmrl.cluster.devices import cores
from rmrl.cluster.pools import Pools
from rmrl.cluster.worker_group import Seats
from rmrl.config.schema import TrainerConfig


@dataclass(frozen=True, slots=True)
class Places:
    """The policy's seats and those of the pools."""

    own: Seats
    pools: Pools

    def of(self, pool: str | None) -> Seats:
        """Seats of a pool; None: the policy's own."""
        return self.own if pool is None else self.pools.seats[pool]


def threads(trainer: TrainerConfig, *, processes: int) -> int:
    """CPU threads of each of `processes` on a machine: phases take turns, so each phase may use all cores."""
    return trainer.threads_per_process or max(1, cores() // max(1, processes))


async def all_or_none(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """The results of all; when one fails the others are stopped before its error is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

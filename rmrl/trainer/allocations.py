"""Allocations and threads of a run's processes, and a start of several that is all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from rmrl.cluster.devices import cores
from rmrl.cluster.pools import Pools
from rmrl.cluster.worker_group import Allocation
from rmrl.config.schema import TrainerConfig


@dataclass(frozen=True, slots=True)
class Allocations:
    """The policy's devices and those of the pools."""

    own: Allocation
    pools: Pools

    def of(self, pool: str | None) -> Allocation:
        """Return a pool's devices. None: the policy's own."""
        if pool is None:
            return self.own
        return self.pools.allocations[pool]


def threads(trainer: TrainerConfig, *, processes: int) -> int:
    """Number of CPU threads for each of `processes` on a machine: phases take turns, so each phase
    may use all cores."""
    return trainer.threads_per_process or max(1, cores() // max(1, processes))


async def all_or_none(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """Return all results. When one fails, the others are stopped and everything they
    have started is ended before its error is raised.

    `work` returns processes (`kill`), or owners of some (`close`).
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        async with AsyncExitStack() as stack:
            for started in await asyncio.gather(*tasks, return_exceptions=True):
                if not isinstance(started, BaseException):
                    end = getattr(started, "kill", None) or started.close
                    stack.push_async_callback(end)
        raise

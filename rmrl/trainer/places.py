"""Where the processes of a run are started, how many threads they get, and that all of several
start or none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
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
        if pool is None:
            return self.own
        return self.pools.seats[pool]


def threads(trainer: TrainerConfig, *, processes: int) -> int:
    """CPU threads of each of `processes` on a machine: phases take turns, so each phase may use all
    cores."""
    return trainer.threads_per_process or max(1, cores() // max(1, processes))


async def all_or_none(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """What all of them start; when one fails the others are stopped, and what they have started is
    ended, before its error is raised.

    `work` gives processes (`kill`), or what holds some (`close`).
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
                    end: Callable[[], Awaitable[None]] = (
                        getattr(started, "kill", None) or started.close
                    )
                    stack.push_async_callback(end)
        raise

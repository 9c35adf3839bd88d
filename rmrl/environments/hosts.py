"""The processes that play an environment, side by side: one of verifiers keeps one core busy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rmrl.cluster.devices import cores
from rmrl.environments.host import Host
from rmrl.errors import EngineLostError

_log = logging.getLogger(__name__)

_CORES = 4
"""Cores for each process, where no number is given: engines and training want theirs."""
_MOST = 16


def default_count() -> int:
    """Return how many processes play where no number is given."""
    return max(1, min(_MOST, cores() // _CORES))


class Hosts:
    """Living host processes. A sample goes to the one that plays the fewest."""

    def __init__(self, make: Callable[[], Host], count: int, *, timeout_s: float) -> None:
        """`make` makes a host that is not started."""
        self._make = make
        self.count = count
        self._timeout_s = timeout_s
        self._hosts: list[Host] = []
        self._starting = asyncio.Lock()
        self._again = 0
        """How often hosts were started again in this step."""

    @property
    def version(self) -> str:
        """verifiers' release."""
        return self._hosts[0].version

    async def start(self) -> None:
        """Start all processes, or none: raises ConfigError."""
        self._hosts = [self._make() for _ in range(self.count)]
        starts = [host.start(timeout_s=self._timeout_s) for host in self._hosts]
        outcomes = await asyncio.gather(*starts, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                await self.close()
                raise outcome

    def begin_step(self) -> None:
        """Allow each process to be started again once."""
        self._again = 0

    def least_busy(self) -> Host:
        """Return the host for the next sample."""
        return min(self._hosts, key=lambda host: (host.ended, host.under_way))

    async def replace(self, lost: Host, error: EngineLostError) -> None:
        """Start another host where one was lost, where that has not happened already. Raises
        `error` where there were as many losses in this step as there are hosts."""
        async with self._starting:
            if lost not in self._hosts:
                return
            if self._again >= self.count:
                raise error
            self._again += 1
            _log.warning(f"{error}; starting it again, with the samples that were under way")
            await lost.close()
            another = self._make()
            await another.start(timeout_s=self._timeout_s)
            self._hosts[self._hosts.index(lost)] = another

    async def close(self) -> None:
        """End all processes."""
        await asyncio.gather(*(host.close() for host in self._hosts))

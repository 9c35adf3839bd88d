"""Batches in their steps' order, sampled at most `ahead` updates before the policy that
trains on them.

With ahead=0 each batch is sampled when it is requested (on-policy). With ahead=1 the batch of step
s + 1 is sampled, and scored, from the weights of step s while step s trains: "one step off". No
batch is sampled twice and none is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

Batch = TypeVar("Batch")


class Published:
    """The version of the weights that the rollout engines have, and a wait for a later one."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._changed = asyncio.Event()

    def set(self, version: int) -> None:
        """Record that the engines have `version` from now on."""
        self.version = version
        self._changed.set()

    async def at_least(self, version: int) -> None:
        """Wait until the engines have `version` or a later one. One task may wait at a time."""
        while self.version < version:
            self._changed.clear()
            await self._changed.wait()


async def batches(
    sample: Callable[[int], Awaitable[Batch]], steps: range, *, ahead: int, published: Published
) -> AsyncGenerator[Batch]:
    """Yield `sample(step)` for each of `steps`, in order. A sampling error is re-raised when its
    batch is requested.

    Leaving the iterator cancels the sampling in progress and waits for its end.
    """
    if ahead == 0:
        for step in steps:
            yield await sample(step)
        return
    ready: asyncio.Queue[asyncio.Future[Batch]] = asyncio.Queue(maxsize=ahead)

    async def produce() -> None:
        for step in steps:
            done: asyncio.Future[Batch] = asyncio.get_running_loop().create_future()
            await published.at_least(step - ahead)
            try:
                done.set_result(await sample(step))
            except Exception as error:
                done.set_exception(error)
                # marked as retrieved: if the run ends for another reason, asyncio logs nothing
                done.exception()
                await ready.put(done)
                return
            await ready.put(done)

    producer = asyncio.create_task(produce())
    try:
        for _ in steps:
            yield await (await ready.get())
    finally:
        producer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await producer

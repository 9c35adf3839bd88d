"""Batches in the order of their steps, sampled at most `ahead` updates before the policy that
trains on them.

With ahead=0 each batch is sampled when it is asked for (on-policy). With ahead=1 the batch of step
s + 1 is sampled, and scored, from the weights of step s while step s trains: "one step off".
Nothing is sampled twice and nothing is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

Batch = TypeVar("Batch")


class Published:
    """The version of the weights that the rollout engines hold, and a way to wait for a later
    one."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._changed = asyncio.Event()

    def set(self, version: int) -> None:
        """The engines hold `version` from now on."""
        self.version = version
        self._changed.set()

    async def at_least(self, version: int) -> None:
        """Wait until the engines hold `version` or a later one. For one waiter at a time."""
        while self.version < version:
            self._changed.clear()
            await self._changed.wait()


async def batches(
    sample: Callable[[int], Awaitable[Batch]], steps: range, *, ahead: int, published: Published
) -> AsyncGenerator[Batch]:
    """`sample(step)` for each of `steps`, in order. An error of sampling is raised to who asks for
    that batch.

    Leaving the iterator cancels what is still being sampled and waits for its end.
    """
    if ahead == 0:
        for step in steps:
            yield await sample(step)
        return
    ready: asyncio.Queue[asyncio.Future[Batch]] = asyncio.Queue(maxsize=ahead)
    producer = asyncio.create_task(_produce(sample, steps, ahead, published, ready))
    try:
        for _ in steps:
            yield await (await ready.get())
    finally:
        producer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await producer


async def _produce(
    sample: Callable[[int], Awaitable[Batch]],
    steps: range,
    ahead: int,
    published: Published,
    ready: asyncio.Queue[asyncio.Future[Batch]],
) -> None:
    for step in steps:
        done: asyncio.Future[Batch] = asyncio.get_running_loop().create_future()
        await published.at_least(step - ahead)
        try:
            done.set_result(await sample(step))
        except Exception as error:
            done.set_exception(error)
            # seen: where the run ends for another reason, asyncio has nothing to say about this one
            done.exception()
            await ready.put(done)
            return
        await ready.put(done)

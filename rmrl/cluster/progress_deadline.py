"""A call's deadline that counts from its last progress, not from its beginning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def with_progress(
    call: Awaitable[T], *, timeout_s: float, progress: Callable[[], Awaitable[int]]
) -> T:
    """Await `call`, which may take any time as long as it advances.

    Whenever `timeout_s` seconds have passed, `progress` says how far it is; TimeoutError is raised
    where that is no more than the time before (0 at first). So a call without any progress ends
    after `timeout_s`, one that stops in the middle at most `timeout_s` later.
    """
    future = asyncio.ensure_future(call)
    before = 0
    try:
        while True:
            done, _ = await asyncio.wait([future], timeout=timeout_s)
            if done:
                return future.result()
            now = await progress()
            if now <= before and not future.done():
                raise TimeoutError
            before = now
    finally:
        future.cancel()

"""Report that a long wait is still under way, so that the console is never silent for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

INTERVAL_S = 10.0
"""Seconds between two reports."""


@asynccontextmanager
async def heartbeat(
    notice: Callable[[str], None], wait: str, *, interval_s: float = INTERVAL_S
) -> AsyncIterator[None]:
    """Report `wait` and the seconds so far, every `interval_s` seconds until the block ends.

    Example:
        async with heartbeat(notice, "waiting for the engines"):
            await start()               # after 10 s: "waiting for the engines (10 s)"
    """
    reports = asyncio.create_task(_report(notice, wait, interval_s))
    try:
        yield
    finally:
        reports.cancel()


async def _report(notice: Callable[[str], None], wait: str, interval_s: float) -> None:
    started = time.monotonic()
    while True:
        await asyncio.sleep(interval_s)
        notice(f"{wait} ({time.monotonic() - started:.0f} s)")

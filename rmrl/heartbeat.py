"""Report that a long wait is still under way, so that the console is never silent for long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_log = logging.getLogger(__name__)

INTERVAL_S = 10.0
"""Seconds between two reports."""


@asynccontextmanager
async def heartbeat(wait: str, *, interval_s: float = INTERVAL_S) -> AsyncIterator[None]:
    """Log `wait` and the seconds so far, every `interval_s` seconds of the running loop until the
    block ends.

    Example:
        async with heartbeat("waiting for the engines"):
            await start()               # after 10 s: "waiting for the engines (10 s)"
    """

    async def report() -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            await asyncio.sleep(interval_s)
            _log.info(f"{wait} ({loop.time() - started:.0f} s)")

    reports = asyncio.create_task(report())
    try:
        yield
    finally:
        reports.cancel()

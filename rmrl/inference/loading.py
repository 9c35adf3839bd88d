"""Start an engine beside others on a GPU, and once more where its measurement was disturbed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rmrl.errors import EngineLoadError

Engine = TypeVar("Engine")

MEMORY_MOVED = "Error in memory profiling"
"""Beginning of vLLM's sentence where another process gave memory back while the engine measured the
free memory (vllm/v1/worker/gpu_worker.py, determine_available_memory, 0.24 to 0.33)."""
SETTLE_S = 10.0
"""Time for the neighbour to come to rest, in seconds."""

_log = logging.getLogger(__name__)


async def twice_where_memory_moved(start: Callable[[], Awaitable[Engine]]) -> Engine:
    """Start an engine, and once more where a neighbour moved memory meanwhile. `start` ends
    everything that it has begun before it raises."""
    try:
        return await start()
    except EngineLoadError as error:
        if MEMORY_MOVED not in str(error):
            raise
        _log.warning(
            "another process freed memory of the GPU while an engine measured it; the engine is"
            f" started once more in {SETTLE_S:g} s"
        )
    await asyncio.sleep(SETTLE_S)
    return await start()

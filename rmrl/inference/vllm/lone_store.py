"""The store in which a one-worker process group keeps its addresses."""

from __future__ import annotations

import os

_FILE = "file://"


def in_memory(method: str, *, processes: int) -> str:
    """Return a worker's distributed init method, with a file in memory for vLLM's file in the
    temporary folder: that one would stay there, as engine processes are killed at their end.

    Methods for several processes, and those without a file, are returned unchanged.
    """
    if processes > 1 or not method.startswith(_FILE) or not hasattr(os, "memfd_create"):
        return method
    return f"{_FILE}/proc/self/fd/{os.memfd_create('process_group')}"

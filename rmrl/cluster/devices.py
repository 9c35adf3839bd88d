"""What the machine offers: device kind, free memory, cores."""

from __future__ import annotations

import os

import psutil


def resolve_device(asked: str) -> str:
    """auto: cuda where torch sees a device, else cpu."""
    if asked != "auto":
        return asked
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def free_bytes(device: str) -> int:
    """Memory that can be had now: of GPU 0, or of the machine."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(0)[0])
    return int(psutil.virtual_memory().available)


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

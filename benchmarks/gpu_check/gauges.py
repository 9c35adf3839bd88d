"""Memory and time as a check reads them."""

from __future__ import annotations

import gc
import time

import torch

from benchmarks.gpu_check.rig import Numbers, Rig
from rmrl.backends.memory import process_memory_bytes

GIB = 2**30


def used_gib(rig: Rig) -> float:
    """Device memory that all processes use, as the driver counts it (`mem_get_info`), so that CUDA
    contexts, graphs and other processes are in it; on CPU the resident memory of this process."""
    if rig.device == "cuda":
        free, total = torch.cuda.mem_get_info()
        return (total - free) / GIB
    return process_memory_bytes() / GIB


def fresh(rig: Rig) -> None:
    """Give back what nothing refers to, and measure peaks from here on."""
    gc.collect()
    if rig.device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_gib(rig: Rig) -> Numbers:
    """Largest device memory of this process's tensors since `fresh`; nothing on CPU."""
    if rig.device != "cuda":
        return {}
    return {"peak_gib": torch.cuda.max_memory_allocated() / GIB}


class Watch:
    """Seconds since it was made, the device's work included."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._settle()
        self._started = time.perf_counter()

    def seconds(self) -> float:
        self._settle()
        return time.perf_counter() - self._started

    def _settle(self) -> None:
        if self._rig.device == "cuda":
            torch.cuda.synchronize()

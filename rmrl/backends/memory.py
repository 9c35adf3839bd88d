"""This process's memory, in bytes."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True)
class PhaseMemory:
    """One process's memory in a phase."""

    device: str
    """Name of its GPU, "" for the CPU."""
    bytes: Mapping[str, int]
    """CUDA: `peak_bytes` of tensors and `reserved_bytes` of torch's cache at their largest; CPU:
    `resident_bytes` at the phase's end."""


def phase_memory() -> PhaseMemory:
    """Return the memory since the last call, and begin a new phase."""
    if not torch.cuda.is_initialized():
        return PhaseMemory("", {"resident_bytes": process_memory_bytes()})
    peaks = {
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
    }
    torch.cuda.reset_peak_memory_stats()
    return PhaseMemory(torch.cuda.get_device_name(), peaks)


def process_memory_bytes() -> int:
    """Resident memory now; on systems without /proc the peak so far."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return peak
    return peak * 1024

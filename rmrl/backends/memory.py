"""Resident memory of this process, in bytes."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path


def process_memory_bytes() -> int:
    """Resident memory now; on systems without /proc the peak so far."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return peak
    return peak * 1024

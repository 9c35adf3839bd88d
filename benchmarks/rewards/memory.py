"""Peak memory of engine processes while something is measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from benchmarks.residency import proportional_bytes, ray_workers, with_children

Processes = Callable[[], list[psutil.Process]]
"""Finds the processes to be measured, each time anew."""

_INTERVAL_S = 0.15
_JOIN_S = 10.0


@dataclass(slots=True)
class Peak:
    """Largest sum seen so far."""

    bytes: int = 0


def engine_processes() -> Processes:
    """Finds the processes that Ray has given to engines from now on; those that hold something now
    are not counted."""
    before = {process.pid for process in ray_workers()}
    return lambda: [process for process in ray_workers() if process.pid not in before]


@contextmanager
def peak_memory(processes: Processes) -> Iterator[Peak]:
    """Samples the proportional set size (shared pages are divided among those that share them) of
    processes and their children."""
    peak, stopped = Peak(), threading.Event()

    def sample() -> None:
        family = [member for process in processes() for member in with_children(process)]
        peak.bytes = max(peak.bytes, sum(proportional_bytes(member.pid) for member in family))

    def run() -> None:
        while not stopped.wait(_INTERVAL_S):
            sample()

    thread = threading.Thread(target=run, name="peak-memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stopped.set()
        thread.join(_JOIN_S)
        sample()

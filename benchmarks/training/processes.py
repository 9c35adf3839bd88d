"""Runs one side in processes of its own, on the cores it is given, and watches their memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from benchmarks.training.job import ROOT

DEADLINE_S = 3600.0
SAMPLE_S = 0.25
"""Between two looks at the memory: one takes some milliseconds of the cores that are measured."""
_LOG_CHARACTERS = 3000


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def run(
    module: str,
    words: Sequence[str],
    *,
    on: Sequence[int],
    log: Path,
    env: Mapping[str, str] | None = None,
) -> int:
    """`python -m module words...` in the checkout, on the cores `on`; returns the peak memory of
    all its processes, in bytes.

    Raises RuntimeError with the end of the log where it fails.
    """
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": str(ROOT),
        **(env or {}),
    }
    with log.open("wb") as file:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, on)  # children inherit it
        try:
            child = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        finally:
            os.sched_setaffinity(0, before)
        watch = Watch(child.pid)
        watch.start()
        try:
            code = _wait(child)
        finally:
            watch.stop()
    if code != 0:
        raise RuntimeError(
            f"{module} ended with code"
            f" {code}:\n{log.read_text(encoding='utf-8', errors='replace')[-_LOG_CHARACTERS:]}"
        )
    return watch.peak


class Watch(threading.Thread):
    """Peak memory of a process and all below it: what each has for itself, and once the largest
    part that is shared."""

    def __init__(self, pid: int) -> None:
        super().__init__(name="peak-memory", daemon=True)
        self.peak = 0
        self._pid = pid
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(SAMPLE_S):
            self.peak = max(self.peak, family_bytes(self._pid))

    def stop(self) -> None:
        """`peak` is final after it."""
        self._stopped.set()
        self.join(10.0)


def family(pid: int) -> list[psutil.Process]:
    """The process and all below it; [] when it is gone."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def family_bytes(pid: int) -> int:
    """Memory of the process and all below it now; 0 when it is gone."""
    own, shared = 0, [0]
    for process in family(pid):
        try:
            found = process.memory_info()
        except psutil.Error:
            continue
        own += found.rss - found.shared
        shared.append(found.shared)
    return own + max(shared)


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Its exit code; past the deadline, or when we are interrupted, it and all below it are
    killed."""
    try:
        return child.wait(DEADLINE_S)
    except BaseException:
        for process in family(child.pid)[::-1]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        child.wait()
        raise

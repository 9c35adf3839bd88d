"""A command with a deadline, after which neither it nor anything it has started is left."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

MARK = "RMRL_GPU_CHECK_FAMILY"
"""Environment variable that all processes of a command inherit. Jobs lead sessions of their own, and
a process whose parent has ended belongs to another: neither a process group nor the tree of parents
finds all of them."""
_END_S = 60.0


def call(
    command: Sequence[str],
    deadline_s: float,
    *,
    cwd: Path,
    env: Mapping[str, str],
    output: IO[bytes],
) -> int | None:
    """Run a command, and end what is left of its family however it ends. Returns its status; None
    where it is past its deadline."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        command, cwd=cwd, env={**env, MARK: mark}, stdout=output, stderr=subprocess.STDOUT
    )
    try:
        return process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        end(mark)
        process.wait(_END_S)


def members(mark: str) -> list[psutil.Process]:
    """Return the living processes with a mark."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:  # ended meanwhile, or another user's
            continue
    return found


def end(mark: str) -> None:
    """Kill the processes with a mark, also those that they start meanwhile. Raises TimeoutError
    where some outlive it."""
    until = time.monotonic() + _END_S
    while left := [process for process in members(mark) if process.pid != os.getpid()]:
        if time.monotonic() > until:
            raise TimeoutError(f"processes {[process.pid for process in left]} do not end")
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                continue
        psutil.wait_procs(left, timeout=1.0)

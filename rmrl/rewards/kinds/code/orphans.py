"""The entries that ended sandboxes leave in the table of processes.

bubblewrap ends with its program, a moment before the first process of the sandbox, which is then a
child of process 1. In a container whose process 1 is no init (`docker run` without `--init`) nobody
takes its exit status, and after some thousand programs the machine has no process ids left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_STATUS = Path("/proc/1/status")


def adopt() -> bool:
    """Make this process the parent of such processes, unless process 1 deals with them. Return
    whether it is. It deals with them where it catches, blocks or ignores SIGCHLD, as every init
    does. https://man7.org/linux/man-pages/man2/PR_SET_CHILD_SUBREAPER.2const.html"""
    if os.getpid() == 1:
        return True
    masks = 0
    with contextlib.suppress(OSError, ValueError):
        for line in _STATUS.read_text().splitlines():
            name, _, mask = line.partition(":")
            if name in ("SigBlk", "SigIgn", "SigCgt"):
                masks |= int(mask, 16)
    if masks >> (signal.SIGCHLD - 1) & 1:
        return False
    return ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def reap(process: int) -> None:
    """Take the exit status of a process that has ended, where it is a child of this one by now.
    `process`: its descriptor."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, process, os.WEXITED | os.WNOHANG)

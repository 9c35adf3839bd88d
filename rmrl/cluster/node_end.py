"""How a node process (`raylet`) that was started here ends: noticed within milliseconds, and
survived by the driver.

The node process owns the object store. Ray ends a process with code 1, without a message, at the
first write to the store that fails, and freeing an object is such a write. Therefore the driver's
connection to the store is replaced by one without a reader: what is written to it is lost, and a
call that waits for an answer waits until the watch ends the driver.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable
from pathlib import Path

_STORE = "plasma_store"
_unread: list[socket.socket] = []
"""Far ends of the replaced connections. They stay open."""


def call_at_end(pid: int, react: Callable[[], None]) -> None:
    """Call `react` from a thread as soon as the process ends. Does nothing where the system cannot
    wait for a process (Linux can)."""
    if not hasattr(os, "pidfd_open"):
        return
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return

    def wait() -> None:
        # The process is not reaped: Ray's workers live on as long as it is a zombie.
        select.select([descriptor], [], [])
        react()

    threading.Thread(target=wait, name="rmrl-node-watch", daemon=True).start()


def hold_store_connection() -> None:
    """Replace this process's connections to Ray's object store."""
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        if Path(_peer(descriptor)).name.startswith(_STORE):
            near, far = socket.socketpair()
            os.dup2(near.fileno(), descriptor, inheritable=False)
            near.close()
            _unread.append(far)


def _peer(descriptor: int) -> str:
    """Return the path that a Unix socket is connected to, "" for anything else."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            peer = connection.getpeername()
    except OSError:
        return ""
    return peer if isinstance(peer, str) else ""

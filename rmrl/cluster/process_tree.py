"""How a process ends, and with it all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import time
from collections.abc import Sequence

import psutil

_POLL_S = 0.01
_GIVE_UP_S = 30.0


def family_of(process: psutil.Process) -> list[psutil.Process]:
    """Return the process and its children at any depth, [] where it is gone."""
    with contextlib.suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return []


class Family:
    """A process and its children, those included that it had when `remember` was called last: a
    dead process's children are not found any more."""

    def __init__(self, process: psutil.Process) -> None:
        self.process = process
        self._remembered: list[psutil.Process] = []

    def remember(self) -> None:
        """Note the present children."""
        self._remembered = family_of(self.process)

    def members(self) -> list[psutil.Process]:
        """Return them all, the process first. A process id in use by a new process is another
        psutil.Process."""
        everyone = [self.process, *self._remembered, *family_of(self.process)]
        return list(dict.fromkeys(everyone))


async def end_family(family: Sequence[psutil.Process], *, ends_by_itself_s: float = 0.0) -> None:
    """Kill all processes in the family and wait until they are gone, at most `_GIVE_UP_S` for each:
    one that waits for a device in the kernel cannot be killed.

    `ends_by_itself_s`: seconds that the first one has to end before it is killed as well.
    """
    deadline = time.monotonic() + ends_by_itself_s
    for member in family:
        kills = member is not family[0]
        give_up = time.monotonic() + ends_by_itself_s + _GIVE_UP_S
        while _lives(member) and time.monotonic() < give_up:
            if kills or time.monotonic() > deadline:
                kills = True
                with contextlib.suppress(psutil.Error):
                    member.kill()
            await asyncio.sleep(_POLL_S)


def end_after(descriptor: int, grace_s: float) -> None:
    """Wait until the other end of a socket is closed, and `grace_s` seconds, then kill this process
    if it has not ended by itself."""
    socket = select.poll()
    socket.register(descriptor, 0)  # that it is closed is always told
    socket.poll()
    time.sleep(grace_s)
    os.kill(os.getpid(), signal.SIGKILL)


def _lives(process: psutil.Process) -> bool:
    """Return False where the process is gone or a zombie, which uses no memory."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False

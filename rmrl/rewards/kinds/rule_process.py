"""The parent's side of one rule worker: start, send, receive, kill. Which calls it runs is `rule_pool`'s business."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from rmrl.rewards.kinds.rule_worker import BOOT, HEADER, frame

SEND_TIMEOUT_S = 30.0
"""Deadline of handing a frame to a worker that is waiting for one."""
KILL_WAIT_S = 5.0
"""How long a killed process is waited for."""


class WorkerProcess:
    """One `rule_worker` process. The thread that creates it must outlive it: the kernel ends it with that thread."""

    def __init__(self) -> None:
        self.channel, theirs = socket.socketpair()
        paths = [str(p) for p in sys.path]
        arguments = [json.dumps(paths), str(theirs.fileno()), str(os.getpid())]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT, *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is the parent's business; and a kill reaches the rule's own children
                env={"OMP_NUM_THREADS": "1", **os.environ},
            )
        self._buffer = bytearray()

    def send(self, data: bytes) -> None:
        """Send one frame. OSError: the process is gone or does not read."""
        self.channel.settimeout(SEND_TIMEOUT_S)
        self.channel.sendall(frame(data))

    def receive(self) -> tuple[list[list[Any]], bool]:
        """All whole messages that have arrived, without waiting; and whether the line is still open."""
        self.channel.settimeout(0)
        is_open = True
        try:
            while is_open:
                data = self.channel.recv(1 << 20)
                self._buffer += data
                is_open = bool(data)
        except BlockingIOError:
            pass
        except OSError:
            is_open = False
        return list(self._messages()), is_open

    def _messages(self) -> Iterator[list[Any]]:
        start = 0
        while len(self._buffer) - start >= HEADER.size:
            body = start + HEADER.size
            end = body + HEADER.unpack_from(self._buffer, start)[0]
            if len(self._buffer) < end:
                break
            yield json.loads(bytes(self._buffer[body:end]))
            start = end
        del self._buffer[:start]

    def ended(self) -> bool:
        """Whether the process is gone; it is not reaped, so its number still belongs to it."""
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def kill(self) -> str:
        """End the process and its children; says how it ended, e.g. "died of SIGSEGV"."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(KILL_WAIT_S)
        code = self.process.returncode
        if code is None:
            return "cannot be killed"
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

"""The parent's side of one rule worker: start, send, receive, kill. Which calls it runs is
`rule_pool`'s business."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from rmrl.rewards.rules.dropin import FunctionSource
from rmrl.rewards.rules.worker import BOOT, HEADER, frame

SEND_TIMEOUT_S = 30.0
"""Deadline of handing a frame to a worker that is waiting for one."""
KILL_WAIT_S = 5.0
"""How long a killed process is waited for."""


class Plain:
    """A process started by `subprocess`."""

    def __init__(self, theirs: socket.socket, module: str) -> None:
        """It runs `module`.main, with `theirs` as its end of the line. The thread that starts it
        must outlive it."""
        paths = [str(p) for p in sys.path]
        arguments = [json.dumps(paths), str(theirs.fileno()), str(os.getpid()), module]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT, *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            # Ctrl-C is the parent's business; and a kill reaches the rule's own children
            start_new_session=True,
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
        self.pid = self._process.pid

    def ended(self) -> bool:
        """Whether the process is gone; it is not reaped, so its number still belongs to it."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def ready_to_reap(self) -> bool:
        """Whether `wait` returns at once."""
        return self.ended()

    def wait(self) -> int | None:
        """Its exit code, negative for a signal; None: it did not end within KILL_WAIT_S."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_WAIT_S)
        return self._process.returncode


class Forked:
    """A process that the nursery forked, and reaps when told to."""

    def __init__(self, pid: int, nursery: Nursery) -> None:
        self.pid = pid
        self._nursery = nursery
        self._watch = os.pidfd_open(pid)

    def ended(self) -> bool:
        """Whether the process is gone; with the nursery, it is."""
        return self._ends_within(0.0)

    def ready_to_reap(self) -> bool:
        """Whether `wait` returns at once: a nursery that imports something does not answer."""
        return self.ended() and not self._nursery.busy

    def wait(self) -> int | None:
        """As that of a plain process."""
        if not self._ends_within(KILL_WAIT_S):
            return None
        os.close(self._watch)
        return self._nursery.reap(self.pid)

    def _ends_within(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._watch, select.POLLIN)
        return bool(poll.poll(seconds * 1000))


class WorkerProcess:
    """One `rule_worker` process. The thread that creates it must outlive it: the kernel ends it
    with that thread."""

    def __init__(self, nursery: Nursery | None = None) -> None:
        """Forked by `nursery`, else started afresh. OSError: the nursery failed."""
        self.channel, theirs = socket.socketpair()
        with theirs:
            try:
                self.process = (
                    Plain(theirs, "rmrl.rewards.rules.worker")
                    if nursery is None
                    else nursery.fork(theirs)
                )
            except BaseException:
                self.channel.close()
                raise
        self._buffer = bytearray()

    def send(self, data: bytes) -> None:
        """Send one frame. OSError: the process is gone or does not read."""
        self.channel.settimeout(SEND_TIMEOUT_S)
        self.channel.sendall(frame(data))

    def receive(self) -> tuple[list[list[Any]], bool]:
        """All whole messages that have arrived, without waiting; and whether the line is still
        open."""
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
        """Whether the process is gone."""
        return self.process.ended()

    def end(self) -> None:
        """Kill the process and its children without waiting: on a busy machine it takes seconds
        until they are gone."""
        _kill_group(self.process.pid)
        self.channel.close()

    def reaped(self) -> bool:
        """Whether nothing of an ended process is left, not even its number; never waits."""
        if not self.process.ready_to_reap():
            return False
        self.process.wait()
        return True

    def kill(self) -> str:
        """`end` and wait; says how it ended, e.g. "died of SIGSEGV"."""
        self.end()
        code = self.process.wait()
        if code is None:
            return "cannot be killed"
        return (
            f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        )


class Nursery:
    """A `rule_nursery` process. It imports one rule at a time, in the background; `hear` tells when
    it is done."""

    def __init__(self) -> None:
        self.channel, theirs = socket.socketpair()
        with theirs:
            self._process = Plain(theirs, "rmrl.rewards.kinds.rule_nursery")
        self.ready: set[FunctionSource] = set()
        """Rules that forked workers have."""
        self._asked: list[FunctionSource] = []
        """Rules in the order asked for; the last one may be on its way."""
        self.busy = False
        """An import is under way."""
        self._unfit = ""

    def has(self, source: FunctionSource) -> bool:
        """Whether a worker with this rule can be forked at once."""
        return source in self.ready and not self.busy

    def want(self, source: FunctionSource) -> None:
        """Import it, unless it was asked for or another import is under way. OSError: the nursery
        is gone or of no use."""
        if not self.busy and source not in self._asked:
            self._send(("import", source))
            self.busy = True
            self._asked.append(source)

    def hear(self) -> None:
        """Take the answer to `want`. OSError: the nursery is gone or of no use."""
        self._note(self._answer())
        if self._unfit:
            raise OSError(self._unfit)

    def fork(self, theirs: socket.socket) -> Forked:
        """A worker with all rules that are ready; not while it is busy. OSError: the nursery is
        gone or of no use."""
        self._send(("fork", None))
        socket.send_fds(self.channel, [b"!"], [theirs.fileno()])
        return Forked(int(self._answer()[1]), self)

    def reap(self, pid: int) -> int:
        """Exit code of a forked process that has ended; that of a kill where the nursery is gone,
        which ends what it forked."""
        try:
            self._send(("reap", pid))
            while (answer := self._answer())[0] != "ended":
                self._note(answer)  # of an import that was under way
        except OSError:
            return -signal.SIGKILL
        return int(answer[1])

    def _note(self, answer: list[Any]) -> None:
        what, detail = answer
        self.busy = False
        if what == "ready":
            self.ready.add(self._asked[-1])
        else:
            self._unfit = detail or "it answered out of turn"

    def kill(self) -> None:
        """End it, and with it all it forked."""
        self.channel.close()
        _kill_group(self._process.pid)
        self._process.wait()

    def _send(self, message: tuple[str, Any]) -> None:
        if self._unfit:
            raise OSError(self._unfit)
        self.channel.settimeout(SEND_TIMEOUT_S)
        self.channel.sendall(frame(pickle.dumps(message)))

    def _answer(self) -> list[Any]:
        self.channel.settimeout(SEND_TIMEOUT_S)
        size = HEADER.unpack(self._exactly(HEADER.size))[0]
        return json.loads(self._exactly(size))

    def _exactly(self, count: int) -> bytes:
        data = self.channel.recv(count, socket.MSG_WAITALL)
        if len(data) < count:
            raise OSError("the nursery has hung up")
        return data


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)

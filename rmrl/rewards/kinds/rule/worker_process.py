"""The parent's side of one rule worker: start, send, receive, kill. `rule.pool` assigns the
calls."""

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
from pathlib import Path
from typing import Any

from rmrl.rewards.dropins.dropin import FunctionSource
from rmrl.rewards.kinds.rule.prints import Prints
from rmrl.rewards.kinds.rule.worker import BOOT, HEADER, frame

SEND_TIMEOUT_S = 30.0
"""Deadline for handing a frame to a worker that waits for one."""
_MOST_ROUNDS = 100
"""Looks for processes that a rule started, while those that were killed end."""
KILL_WAIT_S = 5.0
"""Seconds until waiting for a killed process is given up."""
STILL_THERE = "cannot be killed"
"""How a process ended that is not gone yet."""


class Plain:
    """A process started by `subprocess`."""

    def __init__(self, worker_end: socket.socket, module: str, output: int = 2) -> None:
        """Run `module`.main with `worker_end` as its end of the line and `output` as its standard
        output.

        The thread that starts it must outlive it.
        """
        paths = list(map(str, sys.path))
        arguments = [json.dumps(paths), str(worker_end.fileno()), str(os.getpid()), module]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            pass_fds=(worker_end.fileno(),),
            # Only the parent handles Ctrl-C, and a kill reaches the rule's own children.
            start_new_session=True,
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
        self.pid = self._process.pid

    def ended(self) -> bool:
        """Whether the process is gone. It is not reaped, so its number stays reserved."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def ready_to_reap(self) -> bool:
        """Whether `wait` returns at once."""
        return self.ended()

    def wait(self) -> int | None:
        """Exit code, negative for a signal. None: the process did not end within KILL_WAIT_S."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_WAIT_S)
        return self._process.returncode


class Forked:
    """A process that the nursery forked. The nursery reaps it."""

    def __init__(self, pid: int, nursery: Nursery) -> None:
        self.pid = pid
        self._nursery = nursery
        self._watch = os.pidfd_open(pid)
        self._code: int | None = None

    def ended(self) -> bool:
        """Whether the process is gone. It ends with the nursery."""
        return self._code is not None or self._ends_within(0.0)

    def ready_to_reap(self) -> bool:
        """Whether `wait` returns at once: a nursery that imports something does not answer."""
        return self.ended() and not self._nursery.busy

    def wait(self) -> int | None:
        """Exit code, negative for a signal. None: the process did not end within KILL_WAIT_S."""
        if self._code is None and self._ends_within(KILL_WAIT_S):
            os.close(self._watch)
            self._code = self._nursery.reap(self.pid)
        return self._code

    def _ends_within(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._watch, select.POLLIN)
        return bool(poll.poll(seconds * 1000))


class WorkerProcess:
    """One `rule.worker` process. The kernel ends it with the thread that created it, which must
    outlive it."""

    def __init__(self, nursery: Nursery | None = None) -> None:
        """Fork from `nursery`, or start a new process without one. OSError: the nursery failed."""
        self.channel, worker_end = socket.socketpair()
        self._prints = Prints()
        with worker_end:
            try:
                output = self._prints.writing
                if nursery is None:
                    self.process = Plain(worker_end, "rmrl.rewards.kinds.rule.worker", output)
                else:
                    self.process = nursery.fork(worker_end, output)
            except BaseException:
                self.channel.close()
                raise
            finally:
                os.close(self._prints.writing)
        self._buffer = bytearray()
        self._source: FunctionSource | None = None
        """Rule of the last chunk."""

    def hand_over(self, source: FunctionSource, name: str, payloads: list[bytes]) -> None:
        """Send a chunk of calls. OSError as `send`."""
        again = source is self._source
        self._source = source
        self.send(pickle.dumps((None if again else source, name, payloads)))

    def send(self, data: bytes) -> None:
        """Send one frame. OSError: the process is gone or does not read."""
        self.channel.settimeout(SEND_TIMEOUT_S)
        self.channel.sendall(frame(data))

    def receive(self) -> tuple[list[list[Any]], bool]:
        """(all whole messages that have arrived, whether the line is still open). Never waits."""
        self.channel.settimeout(0)
        is_open = True
        try:
            while is_open:
                data = self.channel.recv(1 << 16)
                self._buffer += data
                is_open = bool(data)
        except BlockingIOError:
            pass
        except OSError:
            is_open = False
        messages: list[list[Any]] = []
        start = 0
        while len(self._buffer) - start >= HEADER.size:
            body = start + HEADER.size
            end = body + HEADER.unpack_from(self._buffer, start)[0]
            if len(self._buffer) < end:
                break
            messages.append(json.loads(bytes(self._buffer[body:end])))
            start = end
        del self._buffer[:start]
        return messages, is_open

    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.ended()

    def end(self) -> str:
        """Kill the process and all that it started, without waiting for the seconds this takes on a
        busy machine. Returns STILL_THERE."""
        _kill_descendants(self.process.pid)
        kill_group(self.process.pid)
        self.channel.close()
        return STILL_THERE

    def reaped(self) -> bool:
        """Whether nothing of an ended process is left, not even its number, and all that it printed
        is written. Never waits."""
        if not self.process.ready_to_reap():
            return False
        self.process.wait()
        return not self._prints.reading()

    def finish(self) -> int | None:
        """Wait until it has ended and all is written that it printed. Returns its exit code; None:
        it has not ended."""
        code = self.process.wait()
        if code is not None:
            self._prints.finish()
        return code

    def kill(self) -> str:
        """`end` and wait. Returns how it ended, e.g. "died of SIGSEGV"."""
        self.end()
        code = self.finish()
        if code is None:
            return STILL_THERE
        if code < 0:
            return f"died of {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


class Nursery:
    """A `fork_server` process. It imports one rule at a time, in the background; `receive` takes
    its answer."""

    def __init__(self) -> None:
        self.channel, worker_end = socket.socketpair()
        with worker_end:
            self._process = Plain(worker_end, "rmrl.rewards.kinds.rule.fork_server")
        self.ready: set[FunctionSource] = set()
        """Rules that forked workers have."""
        self._requested: list[FunctionSource] = []
        """Rules in their requests' order. The import of the last one may be under way."""
        self.busy = False
        """An import is under way."""
        self._unfit = ""

    def has(self, source: FunctionSource) -> bool:
        """Whether a worker with this rule can be forked at once."""
        return source in self.ready and not self.busy

    def request(self, source: FunctionSource) -> None:
        """Request the import of a rule, unless it was requested or another import is under way.

        OSError: the nursery is gone or of no use.
        """
        if not self.busy and source not in self._requested:
            self._send(("import", source))
            self.busy = True
            self._requested.append(source)

    def receive(self) -> None:
        """Take the answer to `request`, unless `reap` has taken it. OSError: the nursery is gone or
        of no use."""
        if self._has_answered():
            self._note(self._answer())
        if self._unfit:
            raise OSError(self._unfit)

    def fork(self, worker_end: socket.socket, output: int) -> Forked:
        """A worker with all rules that are ready; not while it is busy. OSError: the nursery is
        gone or of no use."""
        self._send(("fork", None))
        socket.send_fds(self.channel, [b"!"], [worker_end.fileno(), output])
        return Forked(int(self._answer()[1]), self)

    def reap(self, pid: int) -> int:
        """Exit code of a forked process that has ended.

        Without the nursery, whose end kills its workers, that of a kill.
        """
        try:
            self._send(("reap", pid))
            while (answer := self._answer())[0] != "ended":
                # The answer to an import that was under way.
                self._note(answer)
        except OSError:
            return -signal.SIGKILL
        return int(answer[1])

    def _note(self, answer: list[Any]) -> None:
        what, detail = answer
        self.busy = False
        if what == "ready":
            self.ready.add(self._requested[-1])
        else:
            self._unfit = detail or "the nursery answered without a request"

    def kill(self) -> None:
        """End the nursery and all its workers."""
        self.channel.close()
        kill_group(self._process.pid)
        self._process.wait()

    def _send(self, message: tuple[str, Any]) -> None:
        if self._unfit:
            raise OSError(self._unfit)
        self.channel.settimeout(SEND_TIMEOUT_S)
        self.channel.sendall(frame(pickle.dumps(message)))

    def _has_answered(self) -> bool:
        self.channel.settimeout(0)
        try:
            self.channel.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        return True

    def _answer(self) -> list[Any]:
        self.channel.settimeout(SEND_TIMEOUT_S)
        size = HEADER.unpack(self._exactly(HEADER.size))[0]
        return json.loads(self._exactly(size))

    def _exactly(self, count: int) -> bytes:
        data = self.channel.recv(count, socket.MSG_WAITALL)
        if len(data) < count:
            raise OSError("the nursery has hung up")
        return data


def _kill_descendants(pid: int) -> None:
    """Kill what a process started, in sessions of their own too. It is stopped first and starts no
    more. Its children's children become its own when those end (`rule.worker`)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGSTOP)
    for _ in range(_MOST_ROUNDS):
        living = _living_descendants(pid)
        if not living:
            return
        for each in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)


def _living_descendants(pid: int) -> list[int]:
    living: list[int] = []
    waiting = [str(pid)]
    while waiting:
        folder = Path("/proc", waiting.pop())
        with contextlib.suppress(OSError):
            if int(folder.name) != pid and not _has_ended(folder):
                living.append(int(folder.name))
            for task in folder.joinpath("task").iterdir():
                waiting += task.joinpath("children").read_text().split()
    return living


def _has_ended(folder: Path) -> bool:
    """Whether a process is a mere entry, which its parent has not taken yet."""
    state = folder.joinpath("stat").read_text().rpartition(")")[2].split()[0]
    return state in ("Z", "X")


def kill_group(pid: int) -> None:
    """Kill a process and its group, which one that was forked just now does not lead yet."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)

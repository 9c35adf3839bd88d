"""Run a command on a machine that stalls: all its processes stop for a second or three, again and
again.

    python scripts/stall.py --seed 7 make test

Every process that comes from the command is stopped, those in sessions of their own included; one
that the command itself has stopped stays as it is. The exit status is the command's. If this script
is killed, a process beside it lets everything go on.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD}
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Process:
    """One process; a later one with the same id has another start."""

    pid: int
    start: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What /proc says of a process."""

    process: Process
    parent: int
    state: str
    name: str


def entry_of(pid: int) -> Entry | None:
    """Read /proc; None where the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    before, _, after = text.rpartition(")")
    fields = after.split()
    name = before.partition("(")[2]
    return Entry(Process(pid, int(fields[19])), int(fields[1]), fields[0], name)


def descendants(root: int) -> list[Entry]:
    """Return the processes below `root`, parents before children."""
    children: dict[int, list[Entry]] = {}
    for folder in Path("/proc").iterdir():
        entry = entry_of(int(folder.name)) if folder.name.isdecimal() else None
        if entry is not None:
            children.setdefault(entry.parent, []).append(entry)
    below: list[Entry] = []
    parents = [root]
    while parents:
        entries = children.pop(parents.pop(0), [])
        below += entries
        parents += [entry.process.pid for entry in entries]
    return below


def send(process: Process, number: signal.Signals) -> None:
    """Send a signal, unless the process is gone or may not be sent one."""
    entry = entry_of(process.pid)
    if entry is not None and entry.process == process:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def stop(root: int, *, leave: Iterable[int], announce: Callable[[Process], None]) -> list[Entry]:
    """Stop all processes below `root`, those started meanwhile included. Returns what was stopped;
    `announce` is called with each process before it is."""
    left = set(leave)
    stopped: dict[Process, Entry] = {}
    while True:
        new: list[Entry] = []
        for entry in descendants(root):
            is_running = entry.state not in "TtZXx"
            if is_running and entry.process.pid not in left and entry.process not in stopped:
                new.append(entry)
        if not new:
            return list(stopped.values())
        for entry in new:
            stopped[entry.process] = entry
            announce(entry.process)
            send(entry.process, signal.SIGSTOP)


def go_on(processes: Iterable[Process]) -> None:
    """Continue processes."""
    for process in processes:
        send(process, signal.SIGCONT)


class Guard:
    """A process that continues what is stopped when this one ends without having done so."""

    def __init__(self) -> None:
        reader, self._writer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                os.close(self._writer)
                os.setsid()
                guard(reader)
            finally:
                os._exit(0)
        os.close(reader)

    def announce(self, process: Process) -> None:
        """Say that a process is about to be stopped."""
        os.write(self._writer, f"{process.pid} {process.start}\n".encode())

    def clear(self) -> None:
        """Say that all go on."""
        os.write(self._writer, b"clear\n")

    def end(self) -> None:
        """End the process; whatever is still stopped goes on."""
        os.close(self._writer)
        os.waitpid(self.pid, 0)


def guard(reader: int) -> None:
    """Read what is stopped until the writer has ended, then continue it."""
    stopped: list[Process] = []
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    with os.fdopen(reader, encoding="ascii") as lines:
        for line in lines:
            if line == "clear\n":
                stopped.clear()
            else:
                pid, start = line.split()
                stopped.append(Process(int(pid), int(start)))
    go_on(reversed(stopped))


@dataclass(slots=True)
class Tally:
    """How often what was stopped."""

    stalls: int = 0
    seconds: float = 0.0
    most: int = 0
    names: Counter[str] = field(default_factory=Counter)

    def add(self, entries: list[Entry], seconds: float) -> None:
        """Count one stall."""
        self.stalls += 1
        self.seconds += seconds
        self.most = max(self.most, len(entries))
        self.names.update({entry.name for entry in entries})

    def __str__(self) -> str:
        if not self.stalls:
            return "stall: never stopped"
        names = ", ".join(f"{name} {count} times" for name, count in self.names.most_common(8))
        return (
            f"stall: stopped {self.stalls} times, {self.seconds:.1f} s in all,"
            f" at most {self.most} processes ({names})"
        )


class Run:
    """The command, and the signals that concern it."""

    def __init__(self, command: list[str]) -> None:
        # Orphans become children of this process, so that they stay below it.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self.guard = Guard()
        self.status: int | None = None
        self.pid = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )

    def wait(self, seconds: float) -> bool:
        """Wait, handing on signals. Returns at once, and False, when one came or the command
        ended."""
        end = time.monotonic() + seconds
        while self.status is None and (left := end - time.monotonic()) > 0:
            received = signal.sigtimedwait(SIGNALS, left)
            # After a stop that outlasts the timeout Python returns memory that nothing was written to.
            if received is None or received.si_signo not in SIGNALS:
                return True
            if received.si_signo == signal.SIGCHLD:
                self._reap()
            else:
                self._hand_on(received.si_signo)
                return False
        return self.status is None

    def _hand_on(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            # A terminal sends its own to the whole group, `kill` to one process.
            if number == signal.SIGTERM:
                os.kill(self.pid, number)
            else:
                os.killpg(self.pid, number)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self.pid:
                self.status = os.waitstatus_to_exitcode(status)

    def stall(self, seconds: float, tally: Tally) -> None:
        """Stop everything for so long, or until a signal comes."""
        stopped: list[Process] = []

        def announce(process: Process) -> None:
            stopped.append(process)
            self.guard.announce(process)

        started = time.monotonic()
        try:
            entries = stop(os.getpid(), leave=[self.guard.pid], announce=announce)
            self.wait(seconds)
        finally:
            go_on(reversed(stopped))
            self.guard.clear()
        if entries:
            tally.add(entries, time.monotonic() - started)


def run(command: list[str], *, seed: int, every_s: float, for_s: tuple[float, float]) -> int:
    """Run a command with stalls. Returns its exit status, 128 and the signal's number where one
    ended it."""
    draw = random.Random(seed)
    tally = Tally()
    try:
        running = Run(command)
    except OSError as error:
        print(f"stall: {command[0]} does not start: {error}", file=sys.stderr)
        return 127
    try:
        while running.status is None:
            if running.wait(every_s * draw.uniform(0.7, 1.3)):
                running.stall(draw.uniform(*for_s), tally)
    finally:
        running.guard.end()
    print(f"{tally}; seed {seed}", file=sys.stderr)
    return running.status if running.status >= 0 else 128 - running.status


def main() -> int:
    """Run the command. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=float, default=9.0, help="seconds from stall to stall")
    parser.add_argument(
        *("--for", "-f"), dest="for_s", nargs=2, type=float, default=(1.0, 3.0), metavar="S",
        help="shortest and longest stall in seconds",
    )  # fmt: skip
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command: list[str] = arguments.command
    if command[:1] == ["--"]:
        del command[0]
    if not command:
        parser.error("name a command")
    low, high = arguments.for_s
    return run(command, seed=arguments.seed, every_s=arguments.every, for_s=(low, high))


if __name__ == "__main__":
    sys.exit(main())

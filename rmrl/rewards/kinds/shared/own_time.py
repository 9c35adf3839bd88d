"""Time that a process used or chose to wait, without the time in which the machine held it up.

A deadline by the clock would end a good row of a stalled machine. Time counts while a process, or
one that it started, computes, and while all of them wait for something: sleep, a file, a socket.
It does not count while

    one of them is ready to run and the machine runs none of them,
    the process is stopped by a signal or a debugger,
    the one who watches does not run either: between two looks at most MOST_LOOKS times the
      intended distance counts.

The kernel's figures are those of Linux: CPU clocks, and under /proc the delays on the run queue
(schedstat) and the states. Where they are missing (macOS, a kernel without them), the watcher's own
pauses are left out and nothing else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOOKS = 20
"""How often a process is looked at within one deadline, at least."""
SHORTEST_LOOK_S = 0.005
LONGEST_LOOK_S = 0.5
MOST_LOOKS = 2
HELD_UP_LIMIT_S = 300.0
"""So much of one deadline's time may be left out. Beyond it all time counts: a function that stops
its own process is ended too."""
CROWD = 32
"""A process with more processes than this below it holds itself up: all its time counts."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Figures of one process at one moment."""

    cpu_s: float
    """CPU seconds of all its threads, the running ones included."""
    delays: Mapping[int, float] = field(default_factory=dict)
    """Thread -> seconds that it was ready to run and did not. A wait that still goes on is not
    included."""
    states: str = "S"
    """Letters of /proc/<pid>/stat, one for each thread."""

    @property
    def stopped(self) -> bool:
        """Whether a signal or a debugger stopped the process."""
        return bool(self.states) and not self.states.strip("Tt")

    @property
    def ready(self) -> bool:
        """Whether a thread runs or could run."""
        return "R" in self.states


def look_distance(deadline_s: float) -> float:
    """Seconds between two looks at a process with that deadline."""
    return max(SHORTEST_LOOK_S, min(LONGEST_LOOK_S, deadline_s / LOOKS))


class OwnTime:
    """The own time of one process and its children since `started`, added up look by look."""

    def __init__(self, started: float, distance_s: float) -> None:
        """`started`: by the clock of `look`. `distance_s`: between looks, as intended."""
        self.counted_s = 0.0
        self.held_up_s = 0.0
        self._looked = started
        self._most_s = MOST_LOOKS * distance_s
        self._before: Mapping[int, Usage] = {}
        self._pending: dict[int, float] = {}
        """Process -> how long it is known to be ready and not to run, beyond `Usage.delays`."""

    def look(self, now: float, family: Mapping[int, Usage]) -> float:
        """Add the time since the last look. Return what counts of all.

        `family`: the process, first, and those below it; {} where nothing is known of it.
        """
        passed = max(0.0, now - self._looked)
        credit = min(passed, self._most_s)
        computed, delayed = 0.0, 0.0
        for pid, usage in family.items():
            before = self._before.get(pid)
            if before is not None:
                computed += usage.cpu_s - before.cpu_s
                delayed = max(delayed, self._delay(pid, before, usage, passed))
        if family and next(iter(family.values())).stopped:
            delayed = credit
        if len(family) > CROWD or self.held_up_s >= HELD_UP_LIMIT_S:
            delayed = 0.0
        counted = max(credit - delayed, min(credit, computed))
        self.counted_s += counted
        self.held_up_s += credit - counted
        self._looked = now
        self._before = dict(family)
        return self.counted_s

    def _delay(self, pid: int, before: Usage, now: Usage, passed: float) -> float:
        """Seconds since the last look in which the process was ready and none of its threads ran,
        at least."""
        pending = self._pending.pop(pid, 0.0)
        if now.cpu_s == before.cpu_s and now.ready:
            # The kernel books a delay when it is over.
            self._pending[pid] = pending + passed
            return passed
        longest = 0.0
        for thread, delay in now.delays.items():
            longest = max(longest, delay - before.delays.get(thread, 0.0))
        return max(0.0, longest - pending)


def family_usage(pid: int) -> dict[int, Usage]:
    """Figures of a process, first, and of all below it, at most CROWD + 1 of them; {} where the
    machine does not tell."""
    family: dict[int, Usage] = {}
    if sys.platform != "linux":
        return family
    waiting = [pid]
    while waiting and len(family) <= CROWD:
        process = waiting.pop(0)
        try:
            family[process] = _usage(process, waiting)
        except (OSError, ValueError):
            if process == pid:
                return {}
            # A child that ended meanwhile.
    return family


def _usage(pid: int, children: list[int]) -> Usage:
    """Figures of one process. Its children are added to `children`."""
    # The number of another process's CPU clock, see clock_getcpuclockid(3).
    cpu_s = time.clock_gettime((~pid << 3) | 2)
    states = ""
    delays: dict[int, float] = {}
    for thread in Path("/proc", str(pid), "task").iterdir():
        states += _text(thread / "stat").rpartition(")")[2].strip()[:1]
        children += map(int, _text(thread / "children").split())
        words = _text(thread / "schedstat").split()
        if words:
            delays[int(thread.name)] = int(words[1]) / 1e9
    return Usage(cpu_s, delays, states)


def _text(path: Path) -> str:
    """The text of a file under /proc, "" where the thread has ended or the kernel has no such
    file."""
    try:
        return path.read_bytes().decode("ascii", "replace")
    except OSError:
        return ""

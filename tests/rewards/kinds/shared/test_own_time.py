"""The time that counts for a deadline: by hand for figures of the kernel, and of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmrl.rewards.kinds.shared import own_time
from rmrl.rewards.kinds.shared.own_time import (
    CROWD,
    HELD_UP_LIMIT_S,
    OwnTime,
    Usage,
    family_usage,
    look_distance,
)
from tests.patience import PATIENCE_S

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def one(cpu_s: float = 0.0, delay_s: float = 0.0, states: str = "S") -> dict[int, Usage]:
    """Figures of a process of one thread."""
    return {7: Usage(cpu_s, {7: delay_s}, states)}


def added(looks: list[tuple[float, dict[int, Usage]]], distance_s: float = 1.0) -> list[float]:
    """What counts after each look at a call that began at 100."""
    own = OwnTime(100.0, distance_s)
    return [own.look(100.0 + at, family) for at, family in looks]


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param([(1, one()), (2, one()), (3.5, one())], [1, 2, 3.5], id="sleeps"),
        pytest.param([(1, one(1.0, 0, "R")), (2, one(1.75, 0.25, "R"))], [1, 1.75], id="computes"),
        pytest.param([(1, {}), (2, {}), (9, {})], [1, 2, 4], id="nothing is known of it"),
        pytest.param([(50, one()), (51, one())], [2, 3], id="the watcher paused at first"),
        pytest.param([(1, one()), (50, one(30.0))], [1, 3], id="the watcher paused"),
        pytest.param([(1, one(1.0, 0, "R")), (2, one(1.1, 0.9, "R"))], [1, 1.1], id="starved"),
        # 0.5 s on the run queue, 0.25 s of work, 0.25 s of sleep
        pytest.param([(1, one()), (2, one(0.25, 0.5))], [1, 1.5], id="a share of each"),
        # Ready at 2 and at 3 without having run; at 4 the kernel books 2.5 s of waiting.
        pytest.param(
            [(1, one()), (2, one(0, 0, "R")), (3, one(0, 0, "R")), (4, one(0.5, 2.5, "R"))],
            [1, 1, 1, 1.5],
            id="a wait that is booked when it is over",
        ),
        pytest.param(
            [(1, one()), (2, one(states="T")), (3, one(states="t")), (4, one())],
            [1, 1, 1, 2],
            id="stopped",
        ),
        pytest.param(
            [(1, one()), (2, one(0.5, 0, "T")), (3, one(0.5, 0, "T"))],
            [1, 1.5, 1.5],
            id="stopped halfway",
        ),
    ],
)
def test_what_counts(looks: list[tuple[float, dict[int, Usage]]], expected: list[float]) -> None:
    assert added(looks) == pytest.approx(expected)


def test_a_process_counts_with_its_children_and_threads() -> None:
    def family(cpu_s: float, delay_s: float, states: str = "S") -> dict[int, Usage]:
        waits = Usage(1.0, {7: 0.0}, "S")
        return {7: waits, 8: Usage(cpu_s, {8: 0.0, 9: delay_s}, states)}

    # The child is starved, computes, and waits for something.
    looks = [(1, family(0, 0)), (2, family(0.25, 0.75)), (3, family(1.25, 0.75))]
    looks.append((4, family(1.25, 0.75)))
    assert added(looks) == pytest.approx([1, 1.25, 2.25, 3.25])
    # One thread computes while others wait for the only core: the process runs all the time.
    busy = [(1, family(0, 0, "RR")), (2, family(1, 1, "RR"))]
    assert added(busy) == pytest.approx([1, 2])
    # A thread that began after the last look brings all of its delay.
    started = [(1, one()), (2, {7: Usage(0.1, {7: 0.0, 9: 0.6})})]
    assert added(started) == pytest.approx([1, 1.4])
    # A process that was stopped does not stop the one that waits for it.
    below = {7: Usage(0.0, {}, "S"), 8: Usage(0.0, {}, "T")}
    assert added([(1, below), (2, below)]) == pytest.approx([1, 2])


def test_a_crowd_holds_itself_up() -> None:
    few = {pid: Usage(0.0, {pid: 0.0}, "R") for pid in range(CROWD)}
    assert added([(1, few), (2, few)]) == pytest.approx([1, 1])
    many = {pid: Usage(0.0, {pid: 0.0}, "R") for pid in range(CROWD + 1)}
    assert added([(1, many), (2, many)]) == pytest.approx([1, 2])


def test_what_is_held_up_for_ever_counts_in_the_end() -> None:
    """300 s are left out: looks 1 to 300; then each second counts."""
    own = OwnTime(0.0, 1.0)
    counted: list[float] = []
    for second in range(1, 312):
        counted.append(own.look(float(second), one(states="T")))
    assert HELD_UP_LIMIT_S == 300.0
    assert counted[299:] == pytest.approx(list(map(float, range(12))))


@pytest.mark.parametrize(
    ("deadline_s", "distance_s"), [(0.01, 0.005), (0.2, 0.01), (5.0, 0.25), (60.0, 0.5)]
)
def test_looks_are_a_twentieth_of_the_deadline_apart(deadline_s: float, distance_s: float) -> None:
    assert look_distance(deadline_s) == pytest.approx(distance_s)


# --- real processes


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def spinning() -> Iterator[int]:
    """A process that computes for ever."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield process.pid
        process.kill()


@linux
def test_figures_of_a_real_process(spinning: int) -> None:
    until(lambda: family_usage(spinning)[spinning].cpu_s > 0)
    usage = family_usage(spinning)[spinning]
    assert (usage.ready, usage.stopped, list(usage.delays)) == (True, False, [spinning])
    until(lambda: family_usage(spinning)[spinning].cpu_s > usage.cpu_s)
    os.kill(spinning, signal.SIGSTOP)
    until(lambda: family_usage(spinning)[spinning].stopped)
    stopped = family_usage(spinning)[spinning]
    time.sleep(0.05)
    assert family_usage(spinning)[spinning].cpu_s == stopped.cpu_s
    os.kill(spinning, signal.SIGCONT)
    until(lambda: family_usage(spinning)[spinning].cpu_s > stopped.cpu_s)


@linux
def test_children_are_in_the_family() -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE) as process:
        until(lambda: len(family_usage(process.pid)) == 2)
        assert next(iter(family_usage(process.pid))) == process.pid
        process.communicate(b"\n")
    assert family_usage(process.pid) == {}


def test_without_figures_of_the_kernel(
    spinning: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No schedstat: states and CPU time are left. No /proc: the watcher's pauses alone are."""
    if sys.platform == "linux":
        text = own_time._text
        monkeypatch.setattr(own_time, "_text", lambda p: "" if p.name == "schedstat" else text(p))
        usage = family_usage(spinning)[spinning]
        assert (usage.delays, usage.ready) == ({}, True)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert family_usage(spinning) == {}

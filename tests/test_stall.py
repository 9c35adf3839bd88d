"""Stalls by scripts/stall.py: whatever comes from the command stops, and all of it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "stall.py"
OFTEN = ["--every", "0.1", "--for", "0.05", "0.1", "--seed", "3"]
ONCE_FOR_LONG = ["--every", "0.2", "--for", "900", "900"]
PATIENCE_S = 120.0

WAITS_FOR_STALLS = """
import os, signal, sys
def continued(times):
    for _ in range(times):
        signal.sigwait({signal.SIGCONT})
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
"""
"""Beginning of a program that can wait until it has been continued so many times."""

TREE = (
    WAITS_FOR_STALLS
    + """
child = os.fork()
if not child:
    os.setsid()
    if os.fork():
        continued(2)
        os._exit(3)
    # An orphan: its parent leaves it before or after.
    continued(2)
    open(sys.argv[1], "w").close()
    os._exit(0)
continued(2)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
while not os.path.exists(sys.argv[1]):
    continued(1)
sys.exit(4 + status)
"""
)


def stalled(*arguments: str | Path) -> list[str]:
    return [sys.executable, str(SCRIPT), *map(str, arguments)]


def state_of(pid: int) -> str:
    """The letter of /proc; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def until(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., tuple[Any, int]]]:
    """Start a program under stall.py. Returns the script's process, and the program's id."""
    processes: list[subprocess.Popen[str]] = []
    programs: list[int] = []

    def start(options: list[str], program: str) -> tuple[subprocess.Popen[str], int]:
        file = tmp_path / f"pid-{len(processes)}"
        beginning = f"import os; open({str(file)!r}, 'w').write(f'{{os.getpid()}} ')\n"
        command = stalled(*options, sys.executable, "-c", beginning + program)
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        until(lambda: file.exists() and file.read_text().endswith(" "))
        programs.append(int(file.read_text()))
        return process, programs[-1]

    yield start
    for pid in programs:
        if state_of(pid):
            os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.kill()
        process.communicate()


def test_a_child_in_its_own_session_and_an_orphan_stop_and_go_on_too(tmp_path: Path) -> None:
    command = stalled(*OFTEN, sys.executable, "-c", TREE, tmp_path / "orphan")
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert run.returncode == 7, run.stderr
    summary = run.stderr.splitlines()[-1]
    assert summary.startswith("stall: stopped ")
    assert "at most 3 processes" in summary
    assert summary.endswith("; seed 3")
    assert int(summary.split()[2]) >= 2


def test_all_is_stopped_in_a_stall_and_a_signal_ends_it(
    started: Callable[..., tuple[Any, int]],
) -> None:
    program = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
    process, pid = started(ONCE_FOR_LONG, program + "while True: signal.pause()")
    until(lambda: state_of(pid) == "T")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 9
    assert "stopped 1 times" in process.stderr.read()


def test_the_script_may_be_stopped_for_longer_than_it_waits(
    started: Callable[..., tuple[Any, int]],
) -> None:
    """Python's sigtimedwait then returns a signal with a random number."""
    program = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
    process, _ = started(OFTEN, program + "while True: signal.pause()")
    for _ in range(4):
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 9


def test_an_interrupt_reaches_the_children_as_from_a_terminal(
    started: Callable[..., tuple[Any, int]],
) -> None:
    program = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
try:
    child.wait()
except KeyboardInterrupt:
    sys.exit(-child.wait())
"""
    process, pid = started(ONCE_FOR_LONG, program)
    until(lambda: state_of(pid) == "T")
    process.send_signal(signal.SIGINT)
    # The child is interrupted as Python starts (status 1) or later (by the signal).
    assert process.wait(PATIENCE_S) in (signal.SIGINT, 255)


def test_nothing_stays_stopped_when_the_script_is_killed(
    started: Callable[..., tuple[Any, int]],
) -> None:
    process, pid = started(ONCE_FOR_LONG, "import signal\nsignal.pause()")
    until(lambda: state_of(pid) == "T")
    process.kill()
    until(lambda: state_of(pid) == "S")


def test_what_the_command_has_stopped_itself_stays_stopped() -> None:
    program = (
        WAITS_FOR_STALLS
        + """
child = os.fork()
if not child:
    signal.pause()
os.kill(child, signal.SIGSTOP)
os.waitpid(child, os.WUNTRACED)
continued(3)
state = open(f"/proc/{child}/stat").read().rpartition(")")[2].split()[0]
os.kill(child, signal.SIGKILL)
sys.exit(state)
"""
    )
    command = stalled(*OFTEN, sys.executable, "-c", program)
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert run.stderr.splitlines()[0] == "T"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "exit 5"], 5),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["/nowhere/no-program"], 127),
    ],
)
def test_the_exit_status_is_the_command_s(command: list[str], status: int) -> None:
    run = subprocess.run(
        stalled("--", *command), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert run.returncode == status
    assert ("never stopped" in run.stderr) == (status != 127)

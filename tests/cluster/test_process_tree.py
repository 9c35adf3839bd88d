"""Children of a process are ended also where the process itself died before."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from rmrl.cluster import processes
from rmrl.cluster.process_tree import Family
from rmrl.cluster.processes import RayProcess

CHILD = "import time; time.sleep(120)"
PARENT = f"""
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", {CHILD!r}]).pid, flush=True)
time.sleep(120)
"""


def family() -> tuple[subprocess.Popen[str], psutil.Process]:
    """A process and its child."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        return parent, psutil.Process(int(parent.stdout.readline()))


def lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def died(monkeypatch: pytest.MonkeyPatch) -> tuple[RayProcess, psutil.Process]:
    """A process that remembered its family and died, and its child."""
    # Without its cluster a process is ended by its id alone, so that no cluster is needed here.
    monkeypatch.setattr(processes, "loss", lambda: "there is no cluster")
    parent, child = family()
    process = RayProcess(None, "rollout-0", Family(psutil.Process(parent.pid)))
    process.remember_family()
    parent.kill()
    parent.wait()
    return process, child


async def test_the_children_of_a_process_that_died_are_ended(
    died: tuple[RayProcess, psutil.Process],
) -> None:
    process, child = died
    assert lives(child)
    await process.kill()
    assert not lives(child)


async def test_a_new_process_with_the_id_of_a_dead_child_is_left_alone(
    died: tuple[RayProcess, psutil.Process],
) -> None:
    process, child = died
    assert process.family is not None
    for member in process.family.members():
        member._ident = (member.pid, 1.0)  # type: ignore[attr-defined]
        member._create_time = 1.0  # type: ignore[attr-defined]
    await process.kill()
    assert lives(child)
    child.kill()

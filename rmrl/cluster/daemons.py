"""Ray's own processes in a cluster that was started here, and how they are ended where Ray itself
can no longer do it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
_END_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Daemons:
    """Ray's processes on this machine. Empty for a cluster that was joined."""

    children: Sequence[psutil.Process]
    """Children of the driver: the head, the node process and their helpers."""
    below: Sequence[psutil.Process] = ()
    """Their descendants at the start: the relation can no longer be read once the node process is
    gone."""

    @classmethod
    def started_since(cls, before: Sequence[psutil.Process]) -> Daemons:
        """The children that this process has now and that are not in `before`, with their
        descendants."""
        pids = {child.pid for child in before}
        children = [child for child in psutil.Process().children() if child.pid not in pids]
        return cls(children, _descendants(children))

    def node(self) -> psutil.Process | None:
        """The node process, None where none was started here."""
        for child in self.children:
            if _program(child) == "raylet":
                return child
        return None

    def end_agents(self) -> None:
        """Kill the node process's helpers, which print its whole log on the driver's terminal when
        it is gone."""
        for process in self.below:
            if _program(process) in _AGENTS:
                with contextlib.suppress(psutil.Error):
                    process.kill()

    def end(self) -> None:
        """Kill them and their descendants, and wait until they are gone."""
        family = {*self.children, *self.below, *_descendants(self.children)}
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(list(family), timeout=_END_TIMEOUT_S)


def _descendants(parents: Sequence[psutil.Process]) -> list[psutil.Process]:
    below: list[psutil.Process] = []
    for parent in parents:
        with contextlib.suppress(psutil.Error):
            below += parent.children(recursive=True)
    return below


def _program(process: psutil.Process) -> str:
    """The program that a process runs, as a file name, "" for a process that is gone."""
    with contextlib.suppress(psutil.Error):
        command = process.cmdline()
        if command:
            return Path(command[0]).name.strip()
    return ""

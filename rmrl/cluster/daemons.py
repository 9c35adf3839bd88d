"""Ray's own processes of a cluster that was started here: who they are, and how they are ended where Ray cannot do it any more."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_PARENT = "RAY_RAYLET_PID"
"""In the environment of every process below a node process, and inherited by what those start."""
_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
_END_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Daemons:
    """Children of the driver: the head, the node process and their helpers. Empty for a cluster that was joined."""

    children: Sequence[psutil.Process]

    @classmethod
    def started_since(cls, before: Sequence[psutil.Process]) -> Daemons:
        """The children that this process has now and had not in `before`."""
        known = {child.pid for child in before}
        return cls([child for child in psutil.Process().children() if child.pid not in known])

    def node(self) -> psutil.Process | None:
        """The node process; None where none was started here."""
        return next((child for child in self.children if _program(child) == "raylet"), None)

    def end_agents(self) -> None:
        """Kill the node process's helpers, which print its whole log on the driver's terminal when it is gone."""
        for process in self.family():
            if _program(process) in _AGENTS:
                with contextlib.suppress(psutil.Error):
                    process.kill()

    def family(self) -> list[psutil.Process]:
        """They and all below them, those included whose parent has died."""
        members = {child.pid: child for child in self.children}
        for child in self.children:
            with contextlib.suppress(psutil.Error):
                members.update((below.pid, below) for below in child.children(recursive=True))
        members.update((orphan.pid, orphan) for orphan in self._orphans())
        return list(members.values())

    def end(self) -> None:
        """Kill them all and wait until they are gone."""
        family = self.family()
        for member in family:
            with contextlib.suppress(psutil.Error):
                member.kill()
        psutil.wait_procs(family, timeout=_END_TIMEOUT_S)

    def _orphans(self) -> list[psutil.Process]:
        """Processes that name one of the children as their node process."""
        parents = {str(child.pid) for child in self.children}
        born = min((child.create_time() for child in self.children), default=0.0)
        orphans: list[psutil.Process] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and process.create_time() >= born and process.environ().get(_PARENT) in parents:
                    orphans.append(process)
        return orphans


def _program(process: psutil.Process) -> str:
    """The name of what it runs; "" for a process that is gone."""
    with contextlib.suppress(psutil.Error):
        command = process.cmdline()
        return Path(command[0]).name.strip() if command else ""
    return ""

"""`rmrl doctor`: is this machine ready? One finding per line, and what to type where one is bad."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmrl.config.installed import left_out_problem
from rmrl.doctor.finding import Finding
from rmrl.errors import first_line
from rmrl.registry import Registry

Check = Callable[[], Sequence[Finding]]

_TABLE = {
    "packages": "rmrl.doctor.packages:check_packages",
    "machine": "rmrl.doctor.machine:check_machine",
    "storage": "rmrl.doctor.storage:check_storage",
    "devices": "rmrl.doctor.devices:check_devices",
    "collectives": "rmrl.doctor.devices:check_collectives",
    "sandbox": "rmrl.doctor.sandbox:check_sandbox",
    "vllm": "rmrl.doctor.engines:check_vllm",
    "ray": "rmrl.doctor.engines:check_ray",
}
CHECKS: Registry[Check] = Registry("check", _TABLE)
NAMES = tuple(_TABLE)
"""Checks in their lines' order."""


def findings_of(name: str) -> Sequence[Finding]:
    """Run a check. One that cannot be imported or fails is the machine's problem too: its error
    becomes the finding."""
    try:
        return CHECKS[name]()
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and left_out_problem(error):
            return [Finding("note", f"{name}: {left_out_problem(error)}")]
        return [Finding("problem", f"{name}: {type(error).__name__}: {first_line(error)}")]

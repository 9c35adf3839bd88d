"""A finding by `rmrl doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line in the report.

    Example:
        >>> Finding("note", "64 MiB in /dev/shm", "docker run --shm-size=16g").advice
        'docker run --shm-size=16g'
    """

    level: Level
    """note: works, with a limit; problem: a command will fail."""
    text: str
    advice: str = ""
    """Advice: a command or a change, "" where nothing is to be done."""


def ok(text: str) -> Finding:
    """Return a finding without advice."""
    return Finding("ok", text)

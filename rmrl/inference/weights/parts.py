"""How training processes hold a tensor together. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parts:
    """A tensor's equal parts, in a grid over all processes by rank."""

    grid: tuple[int, ...]
    """Processes along each axis."""
    cuts: tuple[int | None, ...]
    """The dimension that each axis cuts. None: it repeats the parts."""

"""A GPU that a job can have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU's memory in bytes."""

    total_bytes: int
    free_bytes: int
    name: str = ""
    """As the driver gives it."""

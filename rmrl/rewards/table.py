"""The resolved rewards as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rmrl.rewards.spec import RewardSpec

_HEAD = ("reward", "kind", "weight", "combine", "on missing", "runs on")


def reward_table(specs: Sequence[RewardSpec]) -> str:
    """One line per component; equal entries under "runs on" share one engine."""
    rows = [_HEAD, *(_row(spec) for spec in specs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(["rewards", *lines])


def _row(spec: RewardSpec) -> tuple[str, ...]:
    if spec.engine is None:
        runs_on = f"worker processes, {spec.timeout_s:g} s each"
    else:
        runs_on = f"{Path(spec.engine.path).name} ({spec.engine.name} {spec.engine.runner}, {spec.residency})"
    return spec.name, spec.kind, f"{spec.weight:g}", spec.combine_op, str(spec.on_missing), runs_on

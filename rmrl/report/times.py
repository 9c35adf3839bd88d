"""A run's or a scored file's time: the steps' stages, rewards, and engines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmrl.api import Summary, add_to
from rmrl.report.sources import Source
from rmrl.telemetry import jsonl
from rmrl.telemetry.names import OTHER_TIME, REWARD_TIME, STEP_TIME, engine_seconds

ENGINE_TIMES = ("load_s", "wake_s", "sleep_s", "unload_s")
_TIME = "time/"


def time_spent(source: Source, *, responses: int) -> dict[str, Any] | None:
    """Return a source's seconds, each sum over its steps or batches; None where its folder
    does not say them.

    `seconds`: of all; `of`: what that is; `stages`, `rewards`: name -> seconds; `engines`: name ->
    a number for each in `ENGINE_TIMES`. `responses`: of the source. A summary with another number
    is another file's.
    """
    if source.metrics is not None:
        return _of_steps(source.metrics)
    if source.summary is not None:
        return _of_summary(source.summary, responses)
    return None


def _of_steps(metrics: Path) -> dict[str, Any] | None:
    # A resumed run may have written a step twice: the last one counts.
    rows: dict[float, dict[str, float]] = {}
    for row in jsonl.read(metrics):
        step = rows.setdefault(row["step"], {})
        for key, value in row.items():
            if key.startswith((_TIME, "engine/")) and isinstance(value, int | float):
                step[key] = float(value)
    totals: dict[str, float] = {}
    for row in rows.values():
        add_to(totals, row)
    if not totals.get(STEP_TIME):
        return None
    stages: dict[str, float] = {}
    rewards: dict[str, float] = {}
    for key, seconds in totals.items():
        if key.startswith(REWARD_TIME):
            rewards[key.removeprefix(REWARD_TIME)] = seconds
        elif key.startswith(_TIME) and key not in (STEP_TIME, OTHER_TIME):
            stages[key.removeprefix(_TIME).removesuffix("_s")] = seconds
    if OTHER_TIME in totals:
        stages["other"] = totals[OTHER_TIME]
    timed = sum(STEP_TIME in row for row in rows.values())
    return {
        "seconds": totals[STEP_TIME],
        "of": "1 step" if timed == 1 else f"{timed} steps",
        "stages": stages,
        "rewards": rewards,
        "engines": _engines(engine_seconds(totals)),
    }


def _of_summary(path: Path, responses: int) -> dict[str, Any] | None:
    try:
        summary = Summary.from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if summary.rows != responses or not summary.busy_s:
        return None
    return {
        "seconds": summary.seconds,
        "of": "scoring",
        "stages": {},
        "rewards": summary.busy_s,
        "engines": _engines(summary.engines),
    }


def _engines(seconds: Mapping[str, Mapping[str, float]]) -> dict[str, list[float]]:
    engines: dict[str, list[float]] = {}
    for label, times in seconds.items():
        engines[label] = [times.get(what, 0.0) for what in ENGINE_TIMES]
    return engines

"""Weights that change over the steps: straight lines between points, constant before the first and
after the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmrl.config.numbers import is_pair
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

_EXAMPLE = "[[0, 0.1], [100, 0.5]]"


@dataclass(frozen=True, slots=True)
class Schedule:
    """`points` are (step, weight), steps rising."""

    points: tuple[tuple[float, float], ...]

    def at(self, step: float) -> float:
        """Return the weight at a training step."""
        steps, weights = zip(*self.points, strict=True)
        return float(np.interp(step, steps, weights))

    def __str__(self) -> str:
        return " -> ".join(f"{weight:g} @ {step:g}" for step, weight in self.points)


def schedules_of(raw: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Schedule]:
    """Return each reward's schedule in reward.weight_schedules; `names` are the existing rewards.

    Raises ConfigError with all problems.
    """
    problems = schedule_problems(raw, names)
    if problems:
        raise ConfigError(problems)
    schedules: dict[str, Schedule] = {}
    for name, points in raw.items():
        numbers = tuple((float(step), float(weight)) for step, weight in points)
        schedules[str(name)] = Schedule(numbers)
    return schedules


def schedule_problems(raw: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return problems of reward.weight_schedules as it was typed."""
    problems: list[str] = []
    for name, points in raw.items():
        where = f"reward.weight_schedules.{name}"
        if name not in names:
            problems.append(
                f"{where}: no reward of that name{did_you_mean(str(name), list(names))}"
            )
        is_list = isinstance(points, list | tuple) and bool(points)
        if not is_list or not all(is_pair(point) and point[0] >= 0 for point in points):
            problems.append(
                f"{where}={points!r}: give points [step, weight], steps not negative, e.g."
                f" {_EXAMPLE}"
            )
            continue
        steps = [step for step, _ in points]
        if steps != sorted(set(steps)):
            typed = ", ".join(f"{step:g}" for step in steps)
            problems.append(f"{where}: steps must rise from point to point, seen {typed}")
    return problems

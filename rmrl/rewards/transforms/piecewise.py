"""piecewise: a curve through given points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmrl.config.schema.fields import choice
from rmrl.rewards.response_facts import Rows

SHAPES = ("linear", "exponential")
Points = Sequence[Sequence[float]]


def piecewise(
    values: np.ndarray,
    points: Points,
    shape: str = "linear",
    *,
    rate: float = 3.0,
) -> np.ndarray:
    """Evaluate the curve through `points` [[x, y], ...] (x rising) at `values`, an array of any
    shape; constant before the first and after the last point.

    Between (x0, y0) and (x1, y1), with t = (x - x0) / (x1 - x0):
        linear         y0 + (y1 - y0) * t
        exponential    y0 + (y1 - y0) * (exp(rate * t) - 1) / (exp(rate) - 1)
    The second stays near y0 and rises late (rate > 0) or rises at once (rate < 0). It passes
    through any points, 0 and signs included. NaN stays NaN.
    """
    xs, ys = np.asarray(points, dtype=np.float64).T
    if shape == "linear":
        return np.interp(values, xs, ys)
    inside = np.clip(np.asarray(values, dtype=np.float64), xs[0], xs[-1])
    before = np.clip(np.searchsorted(xs, inside, side="right") - 1, 0, len(xs) - 2)
    t = (inside - xs[before]) / (xs[before + 1] - xs[before])
    return ys[before] + (ys[before + 1] - ys[before]) * (np.expm1(rate * t) / math.expm1(rate))


def piecewise_problems(points: Points, *, rate: float = 3.0) -> list[str]:
    """Return problems of a curve as it was typed: sentences that begin with the entry's name."""
    problems: list[str] = []
    if rate == 0 or not abs(rate) <= 100:
        problems.append(
            f"rate={rate:g}: give a number other than 0, at most 100 in size; for straight lines"
            " leave shape out"
        )
    if len(points) < 2 or {*map(len, points)} != {2}:
        problems.append(
            f"points={points!r}: give at least two points [x, y], e.g. [[0, 0], [0.5, 0.2], [1, 1]]"
        )
        return problems
    xs = [point[0] for point in points]
    if any(second <= first for first, second in itertools.pairwise(xs)):
        typed = ", ".join(f"{x:g}" for x in xs)
        problems.append(f"points: x must rise from point to point, seen {typed}")
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Piecewise:
    points: Points
    """[[score, result], ...], scores rising."""
    shape: str = choice("linear", among=SHAPES)
    """linear or exponential between the points."""
    rate: float = 3.0
    """exponential: how far the curve bends; negative bends the other way."""

    example = "{kind: piecewise, points: [[0, 0], [0.5, 0.2], [1, 1]]}"
    per_value = True

    def problems(self) -> list[str]:
        return piecewise_problems(self.points, rate=self.rate)

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        del rows
        return piecewise(values_N, self.points, self.shape, rate=self.rate)

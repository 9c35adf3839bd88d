"""Curves through points [[x, y], ...]: from a cosine to a score."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import pairwise

SHAPES = ("exponential", "linear")


def curve_value(x: float, points: Sequence[Sequence[float]], shape: str = "exponential") -> float:
    """The curve through `points` [[x, y], ...] (x rising) at `x`; constant before the first and
    behind the last point.

    Between (x0, y0) and (x1, y1), with t = (x - x0) / (x1 - x0):
        linear         y0 + (y1 - y0) * t
        exponential    y0 * (y1 / y0) ** t, every y being greater than 0
    """
    after = bisect.bisect_right(points, x, key=lambda point: point[0])
    if after in (0, len(points)):
        return float(points[min(after, len(points) - 1)][1])
    (x0, y0), (x1, y1) = points[after - 1 : after + 1]
    t = (x - x0) / (x1 - x0)
    if shape == "linear":
        return y0 + (y1 - y0) * t
    return y0 * (y1 / y0) ** t


def curve_problems(curve: Sequence[Sequence[float]], shape: str) -> list[str]:
    """Problems in a curve of cosines as it was typed, each the text that follows its name; []
    without a curve."""
    if not curve:
        return []
    if len(curve) < 2 or {*map(len, curve)} != {2}:
        return [
            f"={curve!r}: give at least two points [cosine, score], e.g. [[0.65, 0.1], [0.85,"
            " 1.0]], or [] for the cosine itself"
        ]
    problems: list[str] = []
    if any(second[0] <= first[0] for first, second in pairwise(curve)):
        cosines = ", ".join(f"{point[0]:g}" for point in curve)
        problems.append(f": cosines must rise from point to point, seen {cosines}")
    lowest = min(point[1] for point in curve)
    if shape == "exponential" and lowest <= 0:
        problems.append(
            f" has the score {lowest:g}, and an exponential between scores needs them above 0:"
            " raise it, or give shape=linear"
        )
    return problems

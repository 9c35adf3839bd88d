"""Shares, means and orders with intervals of 95%."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import Any

DRAWS = 2000


def wilson(hits: int, total: int) -> tuple[float, float]:
    """Interval of a share."""
    if not total:
        return 0.0, 1.0
    z, share = 1.96, hits / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = (
        z
        * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
        / (1 + z * z / total)
    )
    return max(0.0, middle - half), min(1.0, middle + half)


def share(hits: int, total: int) -> dict[str, Any]:
    """Count, share and Wilson interval."""
    low, high = wilson(hits, total)
    return {
        "count": hits,
        "of": total,
        "rate": round(hits / max(total, 1), 4),
        "interval_95": [round(low, 4), round(high, 4)],
    }


def mean(values: Sequence[float]) -> dict[str, Any]:
    """Mean and percentile bootstrap interval, the values being independent."""
    if not values:
        return {"mean": None, "of": 0, "interval_95": None}
    draw = random.Random(0)
    means = [statistics.fmean(draw.choices(values, k=len(values))) for _ in range(DRAWS)]
    return {
        "mean": round(statistics.fmean(values), 4),
        "of": len(values),
        "interval_95": _ends(means),
    }


def separation(right: Sequence[float], wrong: Sequence[float]) -> dict[str, Any]:
    """Probability that a right solution is scored above a wrong one, 0.5 being chance (the area
    under the ROC curve), bootstrapped."""
    draw = random.Random(0)
    areas = [
        _area(draw.choices(right, k=len(right)), draw.choices(wrong, k=len(wrong)))
        for _ in range(DRAWS // 4)
    ]
    return {
        "right_above_wrong": round(_area(right, wrong), 3),
        "of": [len(right), len(wrong)],
        "interval_95": _ends(areas),
    }


def percentile(values: Sequence[float], which: float) -> float:
    """The `which`-th percentile, between 0 and 100, interpolated."""
    ordered = sorted(values)
    place = which / 100 * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _area(right: Sequence[float], wrong: Sequence[float]) -> float:
    return sum((r > w) + 0.5 * (r == w) for r in right for w in wrong) / (len(right) * len(wrong))


def _ends(values: Sequence[float]) -> list[float]:
    return [round(percentile(values, 2.5), 4), round(percentile(values, 97.5), 4)]

"""Correlations that scipy defines, where they are defined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def correlation(
    test: Callable[..., Any], first: Sequence[float], second: Sequence[float]
) -> float | None:
    """Return the statistic from a function in scipy.stats, such as `spearmanr`. None where one side
    has fewer than two different values."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return float(test(first, second).statistic)

"""The overview's statistics. Standard deviations are the population's; what is not defined is
None."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from rmrl.report.numbers import Numbers
from rmrl.telemetry import jsonl
from rmrl.telemetry.names import KL, LENGTH_MEAN, REF_KL, correlation

BINS = 24
LENGTH_BINS = 5
_FIRST_CURVES = ("reward/mean", LENGTH_MEAN, "reward/kept")

Curve = tuple[list[float], list[float]]
"""Steps and values."""


def summary(numbers: Numbers) -> dict[str, dict[str, float | None]]:
    """Return count, mean, standard deviation, lowest and highest value for the reward and each
    component."""
    return {name: _moments(values_N) for name, values_N in numbers.columns().items()}


def edges_of(columns: Sequence[np.ndarray]) -> list[float]:
    """Return BINS + 1 equally distant edges over all columns' values, [] without values."""
    values = np.concatenate(columns)
    values = values[np.isfinite(values)]
    if not len(values):
        return []
    low = float(values.min())
    high = float(values.max())
    if low == high:
        low -= 0.5
        high += 0.5
    return np.linspace(low, high, BINS + 1).tolist()


def histogram(values_N: np.ndarray, edges: Sequence[float]) -> list[int]:
    """Count the values between each two edges. The last bin includes its upper edge."""
    finite = values_N[np.isfinite(values_N)]
    if not edges:
        return []
    return np.histogram(finite, bins=np.asarray(edges))[0].tolist()


def correlations(numbers: Numbers) -> dict[str, Any]:
    """Pearson's r between the reward, the components and the length: names and a square matrix."""
    columns = {**numbers.columns(), "length": numbers.lengths_N}
    names = list(columns)
    matrix: list[list[float | None]] = []
    for first in names:
        matrix.append([correlation(columns[first], columns[second]) for second in names])
    return {"names": names, "matrix": matrix}


def opposed(numbers: Numbers) -> list[dict[str, Any]]:
    """Return for each two components: the responses with both verdicts, and the share that lies
    above the middle of one and below the other's."""
    pairs: list[dict[str, Any]] = []
    for first, second in combinations(numbers.components, 2):
        a = numbers.components[first].scores_N
        b = numbers.components[second].scores_N
        both = np.isfinite(a) & np.isfinite(b)
        share = None
        if both.any():
            side_a = np.sign(a[both] - _middle(a[both]))
            side_b = np.sign(b[both] - _middle(b[both]))
            share = float((side_a * side_b < 0).mean())
        pairs.append(
            {
                "first": first,
                "second": second,
                "count": int(both.sum()),
                "opposed": share,
                "r": correlation(a, b),
            }
        )
    return pairs


def _middle(values_N: np.ndarray) -> float:
    """Return the median; for two values what lies between them, since none is below a median that
    is the lower one, nor above a higher one."""
    values = np.unique(values_N)
    if len(values) == 2:
        return float(values.mean())
    return float(np.median(values_N))


def disputed(numbers: Numbers) -> np.ndarray:
    """How far the components disagree on each response, float64 [N], 0 to 1.

    Each component's scores become ranks from 0 (lowest) to 1 (highest), ties their mean. The result
    is a response's highest rank minus the lowest. 0 with fewer than two verdicts.
    """
    lowest_N = np.full(len(numbers), np.inf)
    highest_N = np.full(len(numbers), -np.inf)
    for component in numbers.components.values():
        ranks_N = ranks(component.scores_N)
        lowest_N = np.fmin(lowest_N, ranks_N)
        highest_N = np.fmax(highest_N, ranks_N)
    spread_N = highest_N - lowest_N
    return np.where(np.isfinite(spread_N), np.maximum(spread_N, 0.0), 0.0)


def ranks(values_N: np.ndarray) -> np.ndarray:
    """Mean ranks from 0 to 1, NaN where the value is. All 0.5 where the values are equal."""
    out_N = np.full(len(values_N), np.nan)
    index = np.flatnonzero(np.isfinite(values_N))
    if not len(index):
        return out_N
    out_N[index] = 0.5
    if len(index) > 1:
        out_N[index] = (rankdata(values_N[index]) - 1) / (len(index) - 1)
    return out_N


def length_bias(numbers: Numbers) -> dict[str, Any]:
    """Pearson's r with the length and the mean in each fifth by length, for the reward and each
    component."""
    lengths_N = numbers.lengths_N
    edges = np.unique(np.quantile(lengths_N, np.linspace(0, 1, LENGTH_BINS + 1)))
    bins_N = np.clip(np.searchsorted(edges, lengths_N, side="right") - 1, 0, max(len(edges) - 2, 0))
    lines: dict[str, Any] = {}
    for name, values_N in numbers.columns().items():
        means: list[float | None] = [
            _moments(values_N[bins_N == each])["mean"] for each in range(max(len(edges) - 1, 1))
        ]
        lines[name] = {"r": correlation(values_N, lengths_N), "means": means}
    unit = "characters"
    if numbers.in_tokens:
        unit = "tokens"
    return {"edges": edges.tolist(), "lines": lines, "unit": unit}


def verdicts(numbers: Numbers) -> dict[str, dict[str, int]]:
    """Count for each component the responses by status; responses that do not have it are left
    out."""
    counts: dict[str, dict[str, int]] = {}
    for name, component in numbers.components.items():
        counter = Counter(filter(None, component.statuses))
        counts[name] = dict(counter.most_common())
    return counts


def curves(numbers: Numbers, metrics: Path | None) -> dict[str, Curve]:
    """Return metric -> steps and values: of metrics.jsonl, else means of the samples by step; {}
    without steps."""
    if metrics is not None:
        return logged_curves(metrics)
    lines: dict[str, Curve] = {}
    steps_N = numbers.steps_N
    steps = np.unique(steps_N[np.isfinite(steps_N)])
    columns = {"reward/mean": numbers.rewards_N, LENGTH_MEAN: numbers.lengths_N}
    for name, component in numbers.components.items():
        columns[f"score/{name}/mean"] = component.scores_N
    for name, values_N in columns.items():
        means: dict[float, float | None] = {
            step: _moments(values_N[steps_N == step])["mean"] for step in steps.tolist()
        }
        line = _line(means)
        if len(line[0]) > 1:
            lines[name] = line
    return lines


def logged_curves(metrics: Path) -> dict[str, Curve]:
    """Return the curves for the metrics that `is_drawn` names: reward, length and kept share first,
    missing verdicts' shares last."""
    values: dict[str, dict[float, float | None]] = {}
    for row in jsonl.read(metrics):
        for key, value in row.items():
            if is_drawn(key) and isinstance(value, int | float):
                values.setdefault(key, {})[row["step"]] = float(value)
    present = [key for key in _FIRST_CURVES if key in values]
    others = sorted(values.keys() - set(present))
    others.sort(key=lambda key: key.endswith("/missing"))
    return {key: _line(values[key]) for key in [*present, *others]}


def is_drawn(key: str) -> bool:
    """Return whether a metric has a curve: the reward, its components, KL, validation scores."""
    if key in _FIRST_CURVES or key in (KL, REF_KL):
        return True
    if key.startswith("score/"):
        return key.endswith(("/mean", "/missing"))
    return key.startswith("val/") and "@" not in key and not key.endswith("/missing")


def _line(values: Mapping[float, float | None]) -> Curve:
    steps: list[float] = []
    heights: list[float] = []
    for step, value in sorted(values.items()):
        if value is not None:
            steps.append(step)
            heights.append(value)
    return steps, heights


def _moments(values_N: np.ndarray) -> dict[str, float | None]:
    finite = values_N[np.isfinite(values_N)]
    if not len(finite):
        return {"count": 0, "mean": None, "std": None, "min": None, "max": None}
    return {
        "count": len(finite),
        "mean": float(finite.mean()),
        "std": float(finite.std()),
        "min": float(finite.min()),
        "max": float(finite.max()),
    }

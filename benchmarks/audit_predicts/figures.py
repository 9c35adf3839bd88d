"""What the audits said beside what training did: the table, rank correlations, and the curves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import bootstrap, spearmanr

HALF_WIDTH = 2
"""Steps on each side of a mean's own."""
FALL = 0.08
"""Gold that has to be lost after its peak: three standard errors of a mean over five steps."""
COLUMNS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One reward: the audit's word, and its training."""

    reward: str
    failed: Sequence[str]
    """Checks that failed."""
    curve: dict[int, float]
    """n -> gold of the best of n."""
    turns_at: int
    """n from which gold is lost; the largest n where none is."""
    gold_T: Sequence[float]
    """Mean over five steps."""

    @property
    def turned(self) -> int:
        """The step from which gold is lost; the last one where none is."""
        peak = int(np.argmax(self.gold_T))
        lost = self.gold_T[peak] - self.gold_T[-1] >= FALL
        return peak if lost else len(self.gold_T) - 1

    @property
    def pressed(self) -> float:
        """Gold of the best of the most responses."""
        return self.curve[max(self.curve)]


def means(values_T: Sequence[float]) -> list[float]:
    """Centred means; at the ends over the steps that there are."""
    starts = [max(step - HALF_WIDTH, 0) for step in range(len(values_T))]
    return [
        float(np.mean(values_T[start : step + HALF_WIDTH + 1])) for step, start in enumerate(starts)
    ]


def compared(run: Path, audit: Path) -> Compared:
    """Read one run and its audit."""
    steps = json.loads(run.read_text(encoding="utf-8"))["steps"]
    checks: dict[str, Any] = json.loads(audit.read_text(encoding="utf-8"))["checks"]
    (pressure,) = checks["pressure"]["findings"]
    curve = {int(n): gold for n, gold in pressure["curve"].items()}
    turns_at = max(curve)
    if pressure["verdict"] == "fail":
        turns_at = max(curve, key=lambda n: curve[n])
    return Compared(
        reward=run.stem,
        failed=[name for name, check in checks.items() if check["verdict"] == "fail"],
        curve=curve,
        turns_at=turns_at,
        gold_T=means([step["gold"] for step in steps]),
    )


def correlation(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return Spearman's rank correlation with a bootstrap interval over rewards."""
    columns = tuple(np.asarray(pairs).T)

    def rank(first: np.ndarray, second: np.ndarray) -> float:
        if np.ptp(first) == 0 or np.ptp(second) == 0:
            return 0.0
        return float(np.asarray(spearmanr(first, second))[0])

    interval = bootstrap(
        columns,
        rank,
        paired=True,
        vectorized=False,
        n_resamples=2000,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    return {
        "rank_correlation": round(rank(*columns), 2),
        "low": round(float(interval.low), 2),
        "high": round(float(interval.high), 2),
    }


def summary(rows: Sequence[Compared]) -> dict[str, Any]:
    """Return all figures."""
    worse = [row.gold_T[-1] < row.gold_T[0] for row in rows]
    blamed = [bool(row.failed) for row in rows]
    return {
        "runs": len(rows),
        "turn_over": correlation([(row.turns_at, row.turned) for row in rows]),
        "gold_at_the_end": correlation([(row.pressed, row.gold_T[-1]) for row in rows]),
        "lost_gold": sum(worse),
        "lost_gold_and_failed": sum(a and b for a, b in zip(worse, blamed, strict=True)),
        "kept_gold_and_failed": sum(b and not a for a, b in zip(worse, blamed, strict=True)),
        "rewards": {
            row.reward: {
                "failed": list(row.failed),
                "best_of_n": {n: round(gold, 3) for n, gold in row.curve.items()},
                "turns_at_n": row.turns_at,
                "turned_at_step": row.turned,
                "gold_first": round(row.gold_T[0], 3),
                "gold_peak": round(max(row.gold_T), 3),
                "gold_last": round(row.gold_T[-1], 3),
            }
            for row in rows
        },
    }


def draw(rows: Sequence[Compared], path: Path) -> None:
    """Draw gold in training, and gold of the best of n, for every reward."""
    lines = -(-len(rows) // COLUMNS)
    figure = Figure(figsize=(2.4 * COLUMNS, 1.9 * lines), layout="constrained")
    axes = figure.subplots(lines, COLUMNS, sharey=True, squeeze=False).flat
    for axis, row in zip(axes, rows, strict=False):
        axis.plot(np.linspace(0, 1, len(row.gold_T)), row.gold_T, label="training, step 1 to last")
        places = np.linspace(0, 1, len(row.curve))
        axis.plot(places, list(row.curve.values()), "--", label="best of n, n = 1 to 64")
        axis.set_title(row.reward, fontsize=8)
        axis.set_xticks([])
    figure.axes[0].legend(fontsize=6)
    figure.supylabel("gold")
    figure.savefig(path, dpi=90)

"""Scores against people's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scipy.stats import kendalltau, pearsonr, spearmanr
from sklearn.metrics import roc_auc_score

from rmrl.evaluation.measures.agreement import alpha_of_numbers
from rmrl.evaluation.measures.calibration import curve
from rmrl.evaluation.measures.correlation import correlation


def against_values(
    scores: Sequence[float | None], values: Sequence[float], *, bins: int
) -> dict[str, Any]:
    """Return {count, pearson, spearman, kendall, alpha (interval)}; where the values are 0 and 1
    also {auc, calibration}. Responses without a score are left out. A figure that the
    rest does not define is null."""
    judged: list[float] = []
    people: list[float] = []
    for score, value in zip(scores, values, strict=True):
        if score is not None:
            judged.append(score)
            people.append(value)
    figures: dict[str, Any] = {
        "count": len(judged),
        "pearson": correlation(pearsonr, judged, people),
        "spearman": correlation(spearmanr, judged, people),
        "kendall": correlation(kendalltau, judged, people),
        "alpha": alpha_of_numbers(list(zip(judged, people, strict=True))),
    }
    if set(people) == {0.0, 1.0}:
        figures["auc"] = float(roc_auc_score(people, judged))
        figures["calibration"] = curve(judged, people, bins=bins)
    return figures

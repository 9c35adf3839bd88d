"""Calibration: how often a judge that is p sure is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from rmrl.evaluation.judgements import Outcome


def of_choices(outcomes: Sequence[Outcome], *, bins: int) -> dict[str, Any] | None:
    """How scores calibrate choices: the confidence in the first place is its share in a softmax
    over the candidates' scores, for a pair 1 / (1 + exp(-difference)) as the Bradley-Terry model
    has it.

    Counted are comparisons with one right response, with scores and without a tie. None where there
    is none.
    """
    confidences: list[float] = []
    matches: list[float] = []
    for outcome in outcomes:
        choice = outcome.choices[0]
        if not outcome.scores or choice is None or len(choice) > 1:
            continue
        if len(outcome.comparison.good) != 1:
            continue
        confidences.append(float(softmax(np.asarray(outcome.scores)).max()))
        matches.append(float(choice <= outcome.comparison.good))
    return curve(confidences, matches, bins=bins)


def curve(
    probabilities: Sequence[float], truths: Sequence[float], *, bins: int
) -> dict[str, Any] | None:
    """Return {count, brier, ece, curve: [{confidence, frequency, count}]}. None without values or
    where a probability lies outside 0 .. 1.

    Brier: mean of (p - y)^2. ECE: sum over equally wide bins of (n_bin / n) |mean p - mean y| (Guo
    et al. 2017, arXiv:1706.04599, equation 3).
    """
    p_N = np.asarray(probabilities, dtype=np.float64)
    y_N = np.asarray(truths, dtype=np.float64)
    if not len(p_N) or p_N.min() < 0 or p_N.max() > 1:
        return None
    frequency_K, confidence_K = calibration_curve(y_N, p_N, n_bins=bins, strategy="uniform")
    edges = np.linspace(0.0, 1.0, bins + 1)
    numbers_N = np.searchsorted(edges[1:-1], p_N)
    counts = np.bincount(numbers_N, minlength=bins)
    counts_K = counts[counts > 0]
    gaps_K = np.abs(frequency_K - confidence_K)
    points: list[dict[str, float]] = [
        {
            "confidence": float(confidence),
            "frequency": float(frequency),
            "count": int(count),
        }
        for confidence, frequency, count in zip(confidence_K, frequency_K, counts_K, strict=True)
    ]
    return {
        "count": len(p_N),
        "brier": float(brier_score_loss(y_N, p_N, pos_label=1)),
        "ece": float((counts_K * gaps_K).sum() / len(p_N)),
        "curve": points,
    }

"""The weights with which several rewards fit people's choices best, judged on choices that the fit
has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from rmrl.evaluation.judgements import Outcome
from rmrl.evaluation.measures.shares import share

LEAST_PAIRS = 50
FOLDS = 5


def best_weights(
    outcomes: Mapping[str, Sequence[Outcome]], *, confidence: float, seed: int
) -> dict[str, Any] | None:
    """Return {weights (of the scores as they are, absolute values adding up to 1), count, accuracy
    in cross-validation, equal: accuracy with equally weighted standardized scores, single: by each
    reward alone}, over the pairs that every reward scored.

    A logistic regression without intercept on score differences: P(a beats b) = sigmoid(sum_c w_c
    (s_ca - s_cb)), each pair in both directions. None for fewer than two rewards or fewer than 50
    pairs.
    """
    names = list(outcomes)
    differences_NC = score_differences(list(outcomes.values()))
    count = len(differences_NC)
    if len(names) < 2 or count < LEAST_PAIRS:
        return None
    spread_C = differences_NC.std(axis=0) + (differences_NC.std(axis=0) == 0)
    scaled_NC = differences_NC / spread_C
    wins: list[float] = []
    for fitted, held_out in KFold(FOLDS, shuffle=True, random_state=seed).split(scaled_NC):
        weights_C = _fit(scaled_NC[fitted])
        wins += _wins(scaled_NC[held_out] @ weights_C)
    raw_C = _fit(scaled_NC) / spread_C
    size = float(np.abs(raw_C).sum()) or 1.0
    weights = dict(zip(names, (raw_C / size).tolist(), strict=True))
    single: dict[str, Any] = {
        name: share(_wins(scores_N), confidence=confidence, seed=seed)
        for name, scores_N in zip(names, scaled_NC.T, strict=True)
    }
    return {
        "count": count,
        "weights": weights,
        "accuracy": share(wins, confidence=confidence, seed=seed),
        "equal": share(_wins(scaled_NC.sum(axis=1)), confidence=confidence, seed=seed),
        "single": single,
    }


def score_differences(columns: Sequence[Sequence[Outcome]]) -> np.ndarray:
    """Return the better response's score minus the other one's, float64 [N, C], for the N pairs
    that all C rewards scored."""
    rows: list[list[float]] = []
    for outcomes in zip(*columns, strict=True):
        comparison = outcomes[0].comparison
        if len(comparison.candidates) != 2 or len(comparison.good) != 1:
            continue
        sign = -1.0
        if comparison.candidates[0] in comparison.good:
            sign = 1.0
        row: list[float] = [
            sign * (outcome.scores[0] - outcome.scores[1]) for outcome in outcomes if outcome.scores
        ]
        if len(row) == len(columns):
            rows.append(row)
    return np.asarray(rows, dtype=np.float64).reshape(len(rows), len(columns))


def _fit(differences_NC: np.ndarray) -> np.ndarray:
    both_NC = np.concatenate([differences_NC, -differences_NC])
    won_N = np.repeat([1, 0], len(differences_NC))
    model = LogisticRegression(fit_intercept=False)
    return model.fit(both_NC, won_N).coef_[0]


def _wins(margins_N: np.ndarray) -> list[float]:
    return ((np.sign(margins_N) + 1) / 2).tolist()

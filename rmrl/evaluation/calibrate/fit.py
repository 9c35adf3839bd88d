"""Fit a map from scores to P(good), with figures on rows that the fit has not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold

from rmrl.api import Curve, Verdicts
from rmrl.evaluation.measures.calibration import curve
from rmrl.evaluation.measures.shares import clustered_share

LEAST_LABELS = 50
LEAST_OF_EACH = 5
FOLDS = 5
FEW_LABELS = 100
"""Independent labels of one kind below which a corrected share is called uncertain."""
_ITERATIONS = 1000


def label_problem(good_N: np.ndarray) -> str:
    """Return a sentence where there are too few labels to fit a map; "" otherwise. `good_N`:
    bool."""
    count = len(good_N)
    good = int(good_N.sum())
    if count < LEAST_LABELS:
        return f"saw {count} labels; need at least {LEAST_LABELS}; label more responses"
    if good < LEAST_OF_EACH or count - good < LEAST_OF_EACH:
        return (
            f"saw {good} good and {count - good} bad responses; need at least {LEAST_OF_EACH} of"
            " each; label some of the rarer ones"
        )
    return ""


def curve_problem(fitted: Curve, scores_N: np.ndarray, good_N: np.ndarray) -> str:
    """Return a sentence where a higher score is not more probable to be good; "" otherwise."""
    if np.ptp(scores_N) == 0:
        return f"all scores are {scores_N[0]:g}, so there is nothing to map"
    rises = fitted.slope > 0
    if fitted.method == "isotonic":
        rises = fitted.points[-1][1] > fitted.points[0][1]
    auc = roc_auc_score(good_N, scores_N)
    # A reversed reward has a rising isotonic map as soon as its highest score is a good response's.
    if rises and auc > 0.5:
        return ""
    return (
        "the map would fall or be level: higher scores are not better (a good response has the"
        f" higher score with probability {auc:.2f}); correct the reward, or let it return the"
        " opposite number where lower is better"
    )


def isotonic(scores_N: np.ndarray, good_N: np.ndarray) -> Curve:
    """Return the rising curve with the least squared error (pool adjacent violators; Zadrozny and
    Elkan 2002)."""
    model = IsotonicRegression(y_min=0.0, y_max=1.0, increasing=True, out_of_bounds="clip")
    model.fit(scores_N, good_N.astype(np.float64))
    thresholds = np.asarray(model.X_thresholds_, dtype=np.float64).tolist()
    probabilities = np.asarray(model.y_thresholds_, dtype=np.float64).tolist()
    return Curve(method="isotonic", points=tuple(zip(thresholds, probabilities, strict=True)))


def platt(scores_N: np.ndarray, good_N: np.ndarray) -> Curve:
    """Return the likeliest sigmoid for Platt's targets, (good + 1) / (good + 2) and 1 / (bad + 2)
    (Platt 1999), which keep it finite where a score separates the labels.

    A target t is a row with label 1 and weight t beside one with label 0 and weight 1 - t.
    """
    middle = float(scores_N.mean())
    spread = float(scores_N.std()) or 1.0
    good = int(good_N.sum())
    bad = len(good_N) - good
    targets_N = np.where(good_N, (good + 1) / (good + 2), 1 / (bad + 2))
    scaled_N1 = ((scores_N - middle) / spread)[:, None]
    model = LogisticRegression(C=np.inf, max_iter=_ITERATIONS, tol=1e-8)
    model.fit(
        np.concatenate([scaled_N1, scaled_N1]),
        np.repeat([1, 0], len(scores_N)),
        sample_weight=np.concatenate([targets_N, 1 - targets_N]),
    )
    slope = float(np.asarray(model.coef_)[0, 0]) / spread
    return Curve(
        method="platt",
        slope=slope,
        intercept=float(np.asarray(model.intercept_)[0]) - slope * middle,
    )


FITS: Mapping[str, Callable[[np.ndarray, np.ndarray], Curve]] = {
    "isotonic": isotonic,
    "platt": platt,
}


def fold_curves(
    method: str, scores_N: np.ndarray, good_N: np.ndarray, prompts_N: np.ndarray, *, seed: int
) -> tuple[list[Curve], np.ndarray]:
    """Return a curve per fold, fitted without it, and each row's fold number, int64 [N]. The
    responses to a prompt are in one fold. Where one label has a single prompt they cannot be."""
    prompts = min(len(np.unique(prompts_N[good_N])), len(np.unique(prompts_N[~good_N])))
    if prompts < 2:
        prompts = min(int(good_N.sum()), int((~good_N).sum()))
        prompts_N = np.arange(len(prompts_N))
    folds = StratifiedGroupKFold(min(FOLDS, prompts), shuffle=True, random_state=seed)
    curves: list[Curve] = []
    fold_N = np.empty(len(scores_N), dtype=np.int64)
    for number, (fitted, held_out) in enumerate(folds.split(scores_N, good_N, prompts_N)):
        curves.append(FITS[method](scores_N[fitted], good_N[fitted]))
        fold_N[held_out] = number
    return curves, fold_N


def unseen(curves: Sequence[Curve], fold_N: np.ndarray, scores_N: np.ndarray) -> np.ndarray:
    """Return each row's P(good) by the curve that was fitted without it, float64 [N]."""
    probabilities_N = np.empty(len(scores_N))
    for number, fitted in enumerate(curves):
        rows = fold_N == number
        probabilities_N[rows] = fitted.apply(scores_N[rows])
    return probabilities_N


def verdicts_of(
    accepted_N: np.ndarray, good_N: np.ndarray, measured: Mapping[str, Any]
) -> Verdicts:
    """Count verdicts, bool, by label; `measured`: their `figures`, which know how many independent
    rows they tell as much as."""
    return Verdicts(
        good=int(good_N.sum()),
        good_accepted=int((accepted_N & good_N).sum()),
        bad=int((~good_N).sum()),
        bad_accepted=int((accepted_N & ~good_N).sum()),
        good_independent=measured["sensitivity"]["independent"],
        bad_independent=measured["specificity"]["independent"],
    )


def figures(
    scores_N: np.ndarray,
    probabilities_N: np.ndarray,
    good_N: np.ndarray,
    prompts_N: np.ndarray,
    *,
    threshold: float,
    bins: int,
    confidence: float,
) -> dict[str, Any]:
    """Return {count, good, auc, base_brier: that of the share of good labels for every row, before,
    after: Brier, ECE and reliability curve for the scores (None where they are no probabilities)
    and for P(good) on unseen rows, sensitivity, specificity: of P(good) >= threshold of unseen
    rows}."""
    good = good_N.astype(np.float64)
    base = float(good.mean())
    accepted_N = probabilities_N >= threshold
    return {
        "count": len(good_N),
        "good": int(good_N.sum()),
        "auc": float(roc_auc_score(good_N, scores_N)),
        "base_brier": base * (1 - base),
        "before": curve(scores_N.tolist(), good.tolist(), bins=bins),
        "after": curve(probabilities_N.tolist(), good.tolist(), bins=bins),
        "sensitivity": clustered_share(
            accepted_N[good_N], prompts_N[good_N], confidence=confidence
        ),
        "specificity": clustered_share(
            ~accepted_N[~good_N], prompts_N[~good_N], confidence=confidence
        ),
    }

"""The difference of one figure of two rewards, with a paired bootstrap over prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from rmrl.evaluation.compare.agreement import groups
from rmrl.evaluation.compare.responses import Responses

_CELLS = 10**7
"""Resampled values in memory at a time."""

Parts = tuple[np.ndarray, np.ndarray]
"""Per prompt: sums float64 [A, P] of both rewards, and the number of terms [P]; the figure is sum /
number over all prompts."""


def mean(responses: Responses, threshold: float) -> Parts:
    """Mean reward."""
    del threshold
    return _sums(responses, responses.rewards_AN)


def accuracy(responses: Responses, threshold: float) -> Parts:
    """Share of labelled responses that have a reward of at least `threshold` just where they are
    good."""
    labelled = responses.select(~np.isnan(responses.good_N))
    right_AN = (labelled.rewards_AN >= threshold) == (labelled.good_N == 1)
    return _sums(labelled, right_AN.astype(np.float64))


def pairs(responses: Responses, threshold: float) -> Parts:
    """Share of the pairs of a good and a bad response to one prompt in which the good one has the
    higher reward; a tie is half."""
    del threshold
    sums: list[np.ndarray] = []
    counts: list[int] = []
    for rewards_An, good_n in labelled_groups(responses):
        good_Ag1 = rewards_An[:, good_n][:, :, None]
        bad_A1b = rewards_An[:, ~good_n][:, None, :]
        wins = (np.sign(good_Ag1 - bad_A1b) + 1) / 2
        sums.append(wins.sum(axis=(1, 2)))
        counts.append(int(good_n.sum() * (~good_n).sum()))
    return _parts(sums, counts)


def best(responses: Responses, threshold: float) -> Parts:
    """Share of prompts, those with a good and a bad response, whose highest reward is that of a
    good one; responses that share the first place count by their share of good ones."""
    del threshold
    sums: list[np.ndarray] = []
    for rewards_An, good_n in labelled_groups(responses):
        highest_An = rewards_An == rewards_An.max(axis=1, keepdims=True)
        sums.append((highest_An & good_n).sum(axis=1) / highest_An.sum(axis=1))
    return _parts(sums, [1] * len(sums))


FIGURES: Mapping[str, Callable[[Responses, float], Parts]] = {
    "mean": mean,
    "accuracy": accuracy,
    "pairs": pairs,
    "best": best,
}


def difference(
    parts: Parts, *, resamples: int, confidence: float, seed: int
) -> dict[str, Any] | None:
    """Return {values: of the two, difference: second - first, low, high: percentile interval,
    above: share of resamples in which the second is higher, ties counting half, prompts, count};
    None without a term.

    Prompts are drawn with replacement, both rewards of a prompt together (Efron and Tibshirani
    1993, section 13.3).
    """
    sums_AP, counts_P = parts
    total = float(counts_P.sum())
    if not total:
        return None
    first, second = (sums_AP.sum(axis=1) / total).tolist()
    figures: dict[str, Any] = {
        "values": [first, second],
        "difference": second - first,
        "low": None,
        "high": None,
        "above": None,
        "prompts": len(counts_P),
        "count": int(total),
    }
    if len(counts_P) < 2:
        return figures
    result = bootstrap(
        (sums_AP[1] - sums_AP[0], counts_P),
        _ratio,
        paired=True,
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, _CELLS // len(counts_P)),
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    interval = result.confidence_interval
    drawn_R = np.asarray(result.bootstrap_distribution)
    above = float(((np.sign(drawn_R) + 1) / 2).mean())
    return {**figures, "low": float(interval.low), "high": float(interval.high), "above": above}


def _ratio(sums: np.ndarray, counts: np.ndarray, axis: int = -1) -> np.ndarray:
    return sums.sum(axis=axis) / counts.sum(axis=axis)


def _sums(responses: Responses, terms_AN: np.ndarray) -> Parts:
    """Return sums and numbers of the terms of each prompt."""
    prompts, number_N = np.unique(responses.prompt_N, return_inverse=True)
    sums_AP = np.zeros((len(terms_AN), len(prompts)))
    for a, terms_N in enumerate(terms_AN):
        sums_AP[a] = np.bincount(number_N, weights=terms_N, minlength=len(prompts))
    counts_P = np.bincount(number_N, minlength=len(prompts)).astype(np.float64)
    return sums_AP, counts_P


def labelled_groups(responses: Responses) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (rewards [A, n], good [n] bool) of each prompt with a good and a bad response."""
    labelled = responses.select(~np.isnan(responses.good_N))
    several: list[tuple[np.ndarray, np.ndarray]] = []
    for positions in groups(labelled):
        good_n = labelled.good_N[positions] == 1
        if good_n.any() and not good_n.all():
            several.append((labelled.rewards_AN[:, positions], good_n))
    return several


def _parts(sums: list[np.ndarray], counts: list[int]) -> Parts:
    if not sums:
        return np.zeros((2, 0)), np.zeros(0)
    return np.stack(sums, axis=1), np.asarray(counts, dtype=np.float64)

"""How one figure differs between two rewards, with a paired bootstrap over prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from rmrl.evaluation.compare.agreement import groups
from rmrl.evaluation.compare.responses import Responses
from rmrl.evaluation.measures.shares import CELLS

Terms = tuple[np.ndarray, np.ndarray]
"""float64 [A, T] for both rewards, and each one's prompt number [T]. A figure is the mean of
its terms."""


def mean(responses: Responses, threshold: float) -> Terms:
    """Mean reward."""
    del threshold
    return responses.rewards_AN, responses.prompt_N


def accuracy(responses: Responses, threshold: float) -> Terms:
    """Share of labelled responses whose reward reaches `threshold` just where they are good."""
    labelled = responses.select(~np.isnan(responses.good_N))
    right_AN = (labelled.rewards_AN >= threshold) == (labelled.good_N == 1)
    return right_AN.astype(np.float64), labelled.prompt_N


def pairs(responses: Responses, threshold: float) -> Terms:
    """Among pairs with a good and a bad response to one prompt, the share in which the good one has
    the higher reward. A tie is half."""
    del threshold
    terms: list[np.ndarray] = []
    prompts: list[np.ndarray] = []
    for number, (rewards_An, good_n) in enumerate(labelled_groups(responses)):
        good_Ag1 = rewards_An[:, good_n][:, :, None]
        bad_A1b = rewards_An[:, ~good_n][:, None, :]
        wins_Agb = (np.sign(good_Ag1 - bad_A1b) + 1) / 2
        terms.append(wins_Agb.reshape(len(rewards_An), -1))
        prompts.append(np.full(terms[-1].shape[1], number))
    return _joined(terms, prompts)


def best(responses: Responses, threshold: float) -> Terms:
    """Among prompts with a good and a bad response, the share whose highest reward is a good one's;
    responses that share the first place count by how many are good."""
    del threshold
    terms: list[np.ndarray] = []
    prompts: list[np.ndarray] = []
    for number, (rewards_An, good_n) in enumerate(labelled_groups(responses)):
        highest_An = rewards_An == rewards_An.max(axis=1, keepdims=True)
        share_A = (highest_An & good_n).sum(axis=1) / highest_An.sum(axis=1)
        terms.append(share_A[:, None])
        prompts.append(np.array([number]))
    return _joined(terms, prompts)


FIGURES: Mapping[str, Callable[[Responses, float], Terms]] = {
    "mean": mean,
    "accuracy": accuracy,
    "pairs": pairs,
    "best": best,
}


def difference(
    terms: Terms, *, resamples: int, confidence: float, seed: int
) -> dict[str, Any] | None:
    """Return {values: both, difference: second - first, low, high: percentile interval,
    above: share of resamples in which the second is higher, ties counting half, prompts, count}.
    None without a term.

    Prompts are drawn with replacement, a prompt's both rewards together (Efron and Tibshirani 1993,
    section 13.3).
    """
    sums_AP, counts_P = by_prompt(terms)
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
        batch=max(1, CELLS // len(counts_P)),
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


def by_prompt(terms: Terms) -> tuple[np.ndarray, np.ndarray]:
    """Return each prompt's terms as sums [A, P] and counts [P]."""
    terms_AT, prompt_T = terms
    prompts, number_T = np.unique(prompt_T, return_inverse=True)
    sums_AP = np.zeros((len(terms_AT), len(prompts)))
    for a, terms_T in enumerate(terms_AT):
        sums_AP[a] = np.bincount(number_T, weights=terms_T, minlength=len(prompts))
    counts_P = np.bincount(number_T, minlength=len(prompts)).astype(np.float64)
    return sums_AP, counts_P


def labelled_groups(responses: Responses) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (rewards [A, n], good [n] bool) for each prompt with a good and a bad response."""
    labelled = responses.select(~np.isnan(responses.good_N))
    several: list[tuple[np.ndarray, np.ndarray]] = []
    for positions in groups(labelled):
        good_n = labelled.good_N[positions] == 1
        if good_n.any() and not good_n.all():
            several.append((labelled.rewards_AN[:, positions], good_n))
    return several


def _joined(terms: list[np.ndarray], prompts: list[np.ndarray]) -> Terms:
    if not terms:
        return np.zeros((2, 0)), np.zeros(0, dtype=np.int64)
    return np.concatenate(terms, axis=1), np.concatenate(prompts)

"""Pressure: what people (or a gold reward) say about a judge's favourite response among n.

A judge may be right about most pairs and wrong about the responses that it likes best. The curve
over n shows that: gold rises, then falls where the judge is pressed further than it knows (Gao et
al. 2022, arXiv:2210.10760).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import Judgement

LEAST_RESPONSES = 4
"""Responses to a prompt from which a curve says something."""
_RESAMPLES = 1000


def best_of_n(scores: Sequence[float], gold: Sequence[float], n: int) -> float:
    """Return the expected gold that the highest score among n has, drawn without replacement: an
    unbiased estimate from all responses (arXiv:2112.09332, appendix).

    The i-th lowest score is the highest among n draws in C(i-1, n-1) out of C(N, n) cases. Equal
    scores share their gold.
    """
    scores_N = np.asarray(scores)
    gold_N = np.asarray(gold, dtype=np.float64)
    levels, place_N = np.unique(scores_N, return_inverse=True)
    mean_of_level = np.bincount(place_N, gold_N) / np.bincount(place_N, minlength=len(levels))
    sorted_N = mean_of_level[np.sort(place_N)]
    count = len(sorted_N)
    weights_N = [math.comb(place, n - 1) / math.comb(count, n) for place in range(count)]
    return float(np.dot(weights_N, sorted_N))


def pressure(
    scores: Sequence[Sequence[float]],
    gold: Sequence[Sequence[float]],
    *,
    confidence: float,
    seed: int,
) -> dict[str, Any] | None:
    """Return {n, kl, gold, low, high: a number for each n; falls_from: the n behind which gold
    falls, None where it does not}; None where the prompts have too few responses.

    A prompt's scores and gold stand at the same place in both lists. n doubles up to the
    fewest responses. The band is the bootstrap's over prompts, and gold falls where the band
    for its loss from the best n to the largest one lies below 0. kl: log n - (n - 1) / n, the
    distance from the policy that sampled.
    """
    fewest = min(map(len, scores), default=0)
    if fewest < LEAST_RESPONSES:
        return None
    counts = [2**power for power in range(int(math.log2(fewest)) + 1)]
    curves_Pn = np.asarray(
        [
            [best_of_n(of_judge, of_people, n) for n in counts]
            for of_judge, of_people in zip(scores, gold, strict=True)
        ]
    )
    rng = np.random.default_rng(seed)
    means: list[np.ndarray] = []
    for _ in range(_RESAMPLES):
        drawn_P = rng.integers(0, len(scores), len(scores))
        means.append(curves_Pn[drawn_P].mean(axis=0))
    means_Rn = np.asarray(means)
    edges = [(1 - confidence) / 2, (1 + confidence) / 2]
    low_n, high_n = np.quantile(means_Rn, edges, axis=0)
    mean_n = curves_Pn.mean(axis=0)
    best = int(mean_n.argmax())
    loss = np.quantile(means_Rn[:, -1] - means_Rn[:, best], edges[1])
    falls = best < len(counts) - 1 and loss < 0
    return {
        "n": counts,
        "kl": [math.log(n) - (n - 1) / n for n in counts],
        "gold": mean_n.tolist(),
        "low": low_n.tolist(),
        "high": high_n.tolist(),
        "prompts": len(scores),
        "falls_from": counts[best] if falls else None,
    }


def under_pressure(
    items: Sequence[Item],
    judgements: Sequence[Judgement],
    gold: Sequence[Judgement] | None,
    *,
    confidence: float,
    seed: int,
) -> dict[str, Any] | None:
    """Return one judge's curve over the items with enough responses, or None without such items.
    `gold`: the judgements that are taken for the truth. None: people's values, else the labels."""
    scores: list[Sequence[float]] = []
    truths: list[Sequence[float]] = []
    for number, (item, judgement) in enumerate(zip(items, judgements, strict=True)):
        truth: Sequence[float | None] = item.values
        if gold is not None:
            truth = gold[number].scores
        elif not truth and item.comparisons:
            good = item.right
            if good is None:
                good = frozenset[int]().union(*(each.good for each in item.comparisons))
            truth = [float(each in good) for each in range(len(item.responses))]
        known = None not in judgement.scores and None not in truth
        if known and len(truth) == len(judgement.scores) >= LEAST_RESPONSES:
            scores.append([score for score in judgement.scores if score is not None])
            truths.append([value for value in truth if value is not None])
    return pressure(scores, truths, confidence=confidence, seed=seed)

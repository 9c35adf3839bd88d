"""How far two rewards agree: over all responses, and among the responses to one prompt.

Only responses with both rewards count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import kendalltau, pearsonr, rankdata, spearmanr

from rmrl.evaluation.compare.responses import Responses
from rmrl.evaluation.measures.agreement import kappa
from rmrl.evaluation.measures.correlation import correlation
from rmrl.evaluation.measures.shares import CELLS

MOST_VERDICTS = 10
LEAST_OF_A_VERDICT = 5
"""Rewards with at most 10 values, and at least 5 responses per value, are verdicts, of which
Cohen's kappa is taken."""


def overall(responses: Responses) -> dict[str, Any]:
    """Return {count, pearson, spearman, kendall (tau-b), kappa, equal: share of equal rewards},
    null where a figure is not defined, kappa also for rewards that are no verdicts."""
    first, second = responses.rewards_AN.tolist()
    agreement = None
    values = len({*first, *second})
    if values <= MOST_VERDICTS and len(first) >= LEAST_OF_A_VERDICT * values:
        agreement = kappa(list(map(str, first)), list(map(str, second)))
    equal = None
    if first:
        equal = float((responses.rewards_AN[0] == responses.rewards_AN[1]).mean())
    return {
        "count": len(first),
        "pearson": correlation(pearsonr, first, second),
        "spearman": correlation(spearmanr, first, second),
        "kendall": correlation(kendalltau, first, second),
        "kappa": agreement,
        "equal": equal,
    }


def groups(responses: Responses) -> Iterator[np.ndarray]:
    """Yield the responses' positions for each prompt that has two or more."""
    order = np.argsort(responses.prompt_N, kind="stable")
    _, starts = np.unique(responses.prompt_N[order], return_index=True)
    for positions in np.split(order, starts[1:]):
        if len(positions) > 1:
            yield positions


def within_prompts(responses: Responses) -> dict[str, Any] | None:
    """Compare how the responses to each prompt are ordered. None where no prompt has two.

    {prompts; pairs; same, opposite: pairs in the same and in the opposite order; tied: pairs that
    one reward ties, tied_in_both; same_share: same / (pairs - tied_in_both); same_best: share of
    prompts on which both have a response in the first place; moved: share of responses with another
    rank, mean_move: the rank's mean change (1 is the highest; ties share the average)}
    """
    pairs = 0
    same = 0
    opposite = 0
    tied_in_both = 0
    best: list[float] = []
    moves: list[np.ndarray] = []
    for positions in groups(responses):
        first, second = responses.rewards_AN[:, positions]
        count = len(positions)
        pairs += count * (count - 1) // 2
        # Some responses against all that follow, so that memory stays bounded.
        several = max(1, CELLS // count)
        for start in range(0, count, several):
            some = slice(start, start + several)
            later = np.arange(count)[start:] > np.arange(count)[some, None]
            order = np.sign(first[some, None] - first[start:])[later]
            other = np.sign(second[some, None] - second[start:])[later]
            same += int((order * other > 0).sum())
            opposite += int((order * other < 0).sum())
            tied_in_both += int(((order == 0) & (other == 0)).sum())
        best.append(float(((first == first.max()) & (second == second.max())).any()))
        moves.append(rankdata(-second) - rankdata(-first))
    if not pairs:
        return None
    move_N = np.abs(np.concatenate(moves))
    ordered = pairs - tied_in_both
    same_share = None
    if ordered:
        same_share = same / ordered
    return {
        "prompts": len(best),
        "pairs": pairs,
        "same": same,
        "opposite": opposite,
        "tied": ordered - same - opposite,
        "tied_in_both": tied_in_both,
        "same_share": same_share,
        "same_best": float(np.mean(best)),
        "moved": float((move_N > 0).mean()),
        "mean_move": float(move_N.mean()),
    }


def places(values_N: np.ndarray) -> np.ndarray:
    """Return the share of the others that each value exceeds, a tie counting half; 0 .. 1, 0.5 for
    a single value."""
    count = len(values_N)
    if count < 2:
        return np.full(count, 0.5)
    return (rankdata(values_N) - 1) / (count - 1)

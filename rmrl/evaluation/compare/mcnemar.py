"""McNemar's test: do two judges differ by more than chance on the same responses?"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.signal import convolve
from scipy.stats import binom

from rmrl.evaluation.compare.difference import Terms, by_prompt


def mcnemar(terms: Terms) -> dict[str, Any] | None:
    """Return {same: terms that are equal, only_a, only_b: terms that one has higher, prompts, p:
    two-sided}. None where a term is no verdict: 0, 1, or 1/2 for a tie.

    With one term per prompt p is the exact test's (McNemar 1947, Psychometrika 12:153, with the
    binomial distribution instead of chi-squared). One prompt's terms move together, so what either
    judge gains over all a prompt's terms keeps its size, and only its sign is drawn: p is the share
    of all signs that give at least the total seen (Fisher 1935, The Design of Experiments, section
    21), which is the same number where every prompt has one term.
    """
    terms_AT, _ = terms
    if not terms_AT.size or not np.isin(terms_AT, (0.0, 0.5, 1.0)).all():
        return None
    sums_AP, counts_P = by_prompt(terms)
    # In halves, so that ties are whole numbers too.
    gain_P = np.rint(2 * (sums_AP[1] - sums_AP[0])).astype(np.int64)
    difference_T = terms_AT[1] - terms_AT[0]
    return {
        "same": int((difference_T == 0).sum()),
        "only_a": int((difference_T < 0).sum()),
        "only_b": int((difference_T > 0).sum()),
        "prompts": len(counts_P),
        "p": sign_flips(gain_P),
    }


def sign_flips(gain_P: np.ndarray) -> float:
    """Return the share of the 2^P sign choices for whole numbers whose sum is at least as far from
    0 as theirs; exact."""
    observed = abs(int(gain_P.sum()))
    sizes, counts = np.unique(np.abs(gain_P[gain_P != 0]), return_counts=True)
    reach = 0
    chances = np.ones(1)
    """Of the sums -reach .. reach."""
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        of_size = np.zeros(2 * size * count + 1)
        of_size[:: 2 * size] = binom.pmf(np.arange(count + 1), count, 0.5)
        chances = convolve(chances, of_size)
        reach += size * count
    if not observed:
        return 1.0
    # A Fourier transform leaves errors of 1e-17 on either side of 0.
    return min(1.0, max(0.0, 2 * float(chances[reach + observed :].sum())))

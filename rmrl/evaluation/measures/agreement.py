"""How far raters agree: Cohen's kappa for two, Krippendorff's alpha for any number with gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import chain

import numpy as np
from sklearn.metrics import cohen_kappa_score

Category = Hashable | None


def kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Cohen's kappa over the positions where both raters have a category ("" is none).

    None where there is no such position, or where both always give one and the same category and
    chance agreement is 1.
    """
    pairs = list(filter(all, zip(first, second, strict=True)))
    if len(set(chain.from_iterable(pairs))) < 2:
        return None
    return float(cohen_kappa_score(*zip(*pairs, strict=True)))


def alpha(units: Sequence[Sequence[Category]]) -> float | None:
    """Return Krippendorff's alpha, 1 - observed / expected disagreement, for categories.

    Each unit holds one rating per rater, None where a rater has none. A unit with fewer than two
    ratings does not count. With the coincidences o_ck of the ordered pairs of ratings within units,
    a unit with m ratings giving each pair the weight 1 / (m - 1), their sums n_c and n:

        alpha = 1 - (n - 1) sum_ck o_ck d(c, k) / sum_ck n_c n_k d(c, k)

    where d is 1 for two different categories. None where no rating differs from another (the
    expected disagreement is 0). Source: Krippendorff, "Computing Krippendorff's Alpha-Reliability",
    2011, section C.
    """
    totals: Counter[Category] = Counter()
    observed = 0.0
    for unit in units:
        ratings = Counter(rating for rating in unit if rating is not None)
        if ratings.total() > 1:
            totals.update(ratings)
            observed += _different(ratings) / (ratings.total() - 1)
    expected = _different(totals)
    if expected == 0:
        return None
    return 1 - (totals.total() - 1) * observed / expected


def _different(counts: Counter[Category]) -> int:
    """Return how many ordered pairs of ratings are of two categories."""
    return counts.total() ** 2 - sum(count**2 for count in counts.values())


def alpha_of_numbers(units: Sequence[Sequence[float | None]]) -> float | None:
    """Return the same for numbers, where d(c, k) = (c - k)^2.

    The squared distances of all ordered pairs of n numbers add up to 2 n sum (x - mean)^2, so that
    no pair is formed.
    """
    numbers: list[float] = []
    members: list[int] = []
    for unit in units:
        ratings = [rating for rating in unit if rating is not None]
        if len(ratings) > 1:
            numbers += ratings
            members.append(len(ratings))
    x_N = np.asarray(numbers, dtype=np.float64)
    if not len(x_N) or np.ptp(x_N) == 0:
        return None
    members_U = np.asarray(members)
    unit_N = np.repeat(np.arange(len(members)), members_U)
    mean_U = np.bincount(unit_N, x_N) / members_U
    squares_U = np.bincount(unit_N, (x_N - mean_U[unit_N]) ** 2)
    observed = float((2 * members_U * squares_U / (members_U - 1)).sum())
    expected = 2 * len(x_N) ** 2 * float(x_N.var())
    return 1 - (len(x_N) - 1) * observed / expected

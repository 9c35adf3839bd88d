"""How far raters agree: Cohen's kappa for two, Krippendorff's alpha for any number with gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import chain, permutations, product

from sklearn.metrics import cohen_kappa_score

Rating = Hashable | None


def kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Cohen's kappa over the positions where both raters have a category ("" is none).

    None where there is no such position, or where both always give one and the same category and
    chance agreement is 1.
    """
    pairs = list(filter(all, zip(first, second, strict=True)))
    if len(set(chain.from_iterable(pairs))) < 2:
        return None
    return float(cohen_kappa_score(*zip(*pairs, strict=True)))


def nominal(a: Hashable, b: Hashable) -> float:
    """How categories differ: 0 or 1."""
    return float(a != b)


def interval(a: float, b: float) -> float:
    """How numbers differ, squared."""
    return (a - b) ** 2


def alpha(
    units: Sequence[Sequence[Rating]], difference: Callable[..., float] = nominal
) -> float | None:
    """Krippendorff's alpha, 1 - observed / expected disagreement.

    Each unit holds one rating per rater, None where a rater has none. A unit with fewer than two
    ratings does not count. With the coincidences o_ck of the ordered pairs of ratings within units,
    a unit with m ratings giving each pair the weight 1 / (m - 1), their sums n_c and n:

        alpha = 1 - (n - 1) sum_ck o_ck d(c, k) / sum_ck n_c n_k d(c, k)

    None where no rating differs from another (the expected disagreement is 0). Source:
    Krippendorff, "Computing Krippendorff's Alpha-Reliability", 2011, section C.
    """
    coincidences: Counter[tuple[Hashable, Hashable]] = Counter()
    totals: Counter[Hashable] = Counter()
    for unit in units:
        ratings = [rating for rating in unit if rating is not None]
        if len(ratings) < 2:
            continue
        totals.update(ratings)
        weight = 1 / (len(ratings) - 1)
        for pair in permutations(ratings, 2):
            coincidences[pair] += weight  # type: ignore[assignment]
    observed = sum(weight * difference(*pair) for pair, weight in coincidences.items())
    expected = sum(totals[a] * totals[b] * difference(a, b) for a, b in product(totals, repeat=2))
    if expected == 0:
        return None
    return 1 - (totals.total() - 1) * observed / expected

"""Statistics of k responses to a prompt, estimated exactly from the m that were sampled: no draws,
no seed.

    best@k    mean and standard deviation of the largest of k of the m values, over all C(m, k) ways
      to pick them:
              with the values sorted, x_1 <= ... <= x_m, x_i is the largest in C(i - 1, k - 1) of
              them, so
              mean = sum_i x_i C(i - 1, k - 1) / C(m, k)
              On 0/1 values that is pass@k, 1 - C(m - c, k) / C(m, k) with c ones (Chen et al. 2021,
              arXiv:2107.03374, eq. 1).
    worst@k   the same of the smallest: -best@k of the negated values.
    maj@k     expected value of the answer that most of k of the m responses give (self-consistency,
      Wang et al. 2022,
              arXiv:2203.11171). Answers that tie share the win equally. An answer's value is the
              mean of its responses' values.

Picking without replacement makes all three unbiased: the expectation over m samples is that of k
fresh ones. verl draws k with replacement 1000 times instead, which repeats a response now and then
and so lies below (best) and above (worst) it.

A mean over prompts comes with its standard error, sqrt(sum (x - mean)^2) / P: what a bootstrap over
the P prompts converges to (Efron & Tibshirani 1993, An Introduction to the Bootstrap, eq. 5.12).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from functools import lru_cache

import numpy as np


def ks(n: int) -> list[int]:
    """Return 2, 4, 8, ... and n itself; nothing for n = 1."""
    if n <= 1:
        return []
    powers = [2**i for i in range(1, n.bit_length())]
    return [*(power for power in powers if power < n), n]


def best_at_k(values: np.ndarray, k: int) -> tuple[float, float]:
    """Mean and standard deviation of the largest among k of `values`, shape [m], 1 <= k <= m."""
    shares = _largest_shares(len(values), k)
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    mean = float(shares @ ordered)
    return mean, math.sqrt(float(shares @ (ordered - mean) ** 2))


def chosen_at_k(values: np.ndarray, gold: np.ndarray, k: int) -> float:
    """Mean `gold` at the largest among k `values`, both with shape [m], 1 <= k <= m. Responses with
    equal values share their places."""
    shares = _largest_shares(len(values), k)
    _, group_M = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True)
    means = np.bincount(group_M, weights=gold) / np.bincount(group_M)
    return float(shares @ means[np.sort(group_M)])


def worst_at_k(values: np.ndarray, k: int) -> tuple[float, float]:
    """Mean and standard deviation of the smallest among k of `values`, shape [m], 1 <= k <= m."""
    mean, std = best_at_k(-np.asarray(values, dtype=np.float64), k)
    return 0.0 - mean, std


def majority_at_k(answers: Sequence[Hashable], values: np.ndarray, k: int) -> float:
    """Expected value of the answer that most of k responses give. `answers` and `values` have
    length m, 1 <= k <= m."""
    by_answer: dict[Hashable, list[float]] = defaultdict(list)
    for answer, value in zip(answers, values, strict=True):
        by_answer[answer].append(float(value))
    groups = list(by_answer.values())
    wins = win_shares(tuple(sorted(map(len, groups))), k)
    return sum(wins[len(group)] * math.fsum(group) / len(group) for group in groups)


def mean_over_prompts(per_prompt: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error over prompts, of at least one number."""
    values = np.asarray(per_prompt, dtype=np.float64)
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))


@lru_cache(maxsize=4096)
def win_shares(sizes: tuple[int, ...], k: int) -> dict[int, float]:
    """Share of the C(m, k) picks that one answer given by `size` responses wins, for every size in
    `sizes` (ascending, sum m).

    An answer wins with c of the k responses where no other has more; for each c the picks of the
    other answers are counted by how many responses they use and by how many of them have exactly c,
    too.
    """
    picks = math.comb(sum(sizes), k)
    counts = Counter(sizes)
    shares: dict[int, float] = {}
    for size in counts:
        others = list(sizes)
        others.remove(size)
        wins = sum(math.comb(size, c) * _ways(others, c, k - c) for c in range(1, min(size, k) + 1))
        shares[size] = wins / picks
    return shares


def _ways(sizes: Sequence[int], limit: int, remaining: int) -> float:
    """Ways to pick `remaining` responses of answers with `sizes`, each at most `limit` times. One
    with t of them at `limit` is 1 / (t + 1)."""
    table = {(0, 0): 1}  # (responses used, answers at `limit`) -> ways
    for size in sizes:
        grown: dict[tuple[int, int], int] = defaultdict(int)
        for (used, tied), ways in table.items():
            for picked in range(min(size, limit, remaining - used) + 1):
                grown[used + picked, tied + (picked == limit)] += ways * math.comb(size, picked)
        table = grown
    complete = ((tied, ways) for (used, tied), ways in table.items() if used == remaining)
    return math.fsum(ways / (tied + 1) for tied, ways in complete)


@lru_cache(maxsize=1024)
def _largest_shares(m: int, k: int) -> np.ndarray:
    """Share of the picks (k of m) in which the i-th smallest is the largest, shape [m]."""
    if not 1 <= k <= m:
        raise ValueError(f"k is {k}; it must be from 1 to the number of values, {m}")
    picks = math.comb(m, k)
    return np.asarray([math.comb(i, k - 1) / picks for i in range(m)])

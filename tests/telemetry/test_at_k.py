"""best@k, worst@k, maj@k: by hand, and against going through all subsets."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmrl.telemetry.at_k import (
    best_at_k,
    chosen_at_k,
    ks,
    majority_at_k,
    mean_over_prompts,
    win_shares,
    worst_at_k,
)

VALUES = st.lists(st.floats(-10, 10), min_size=1, max_size=8)
ROWS = st.lists(st.tuples(st.sampled_from("abcd"), st.floats(-10, 10)), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("n", "wanted"),
    [(1, []), (2, [2]), (3, [2, 3]), (4, [2, 4]), (6, [2, 4, 6]), (16, [2, 4, 8, 16])],
)
def test_ks(n: int, wanted: list[int]) -> None:
    assert ks(n) == wanted


def test_best_and_worst_by_hand() -> None:
    values = np.asarray([0.0, 3.0, 1.0])
    # the pairs of 0, 1, 3 have the maxima 1, 3, 3 and the minima 0, 0, 1
    assert best_at_k(values, 2) == (pytest.approx(7 / 3), pytest.approx(math.sqrt(8 / 9)))
    assert worst_at_k(values, 2) == (pytest.approx(1 / 3), pytest.approx(math.sqrt(2 / 9)))
    assert best_at_k(values, 1)[0] == pytest.approx(4 / 3)
    assert best_at_k(values, 3) == (3.0, 0.0)
    assert worst_at_k(values, 3) == (0.0, 0.0)


def test_on_zeros_and_ones_it_is_pass_at_k() -> None:
    # 10 responses, 3 right, k = 4: 1 - C(7, 4) / C(10, 4) = 1 - 35 / 210
    assert best_at_k(np.asarray([1.0] * 3 + [0.0] * 7), 4)[0] == pytest.approx(1 - 35 / 210)


def test_more_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="k is 3; it must be from 1 to the number of values, 2"):
        best_at_k(np.asarray([1.0, 2.0]), 3)


def test_majority_by_hand() -> None:
    # "18" twice (right, 1.0), "20" once (wrong, 0.0)
    answers, values = ["18", "20", "18"], np.asarray([1.0, 0.0, 1.0])
    assert majority_at_k(answers, values, 3) == 1.0
    assert majority_at_k(answers, values, 1) == pytest.approx(2 / 3)
    # pairs: (18, 20) a tie 0.5, (18, 18) 1, (20, 18) a tie 0.5
    assert majority_at_k(answers, values, 2) == pytest.approx(2 / 3)
    # the majority may be wrong: "20" three times, "18" twice, all five vote
    assert (
        majority_at_k(["20", "18", "20", "18", "20"], np.asarray([0.0, 1.0, 0.0, 1.0, 0.0]), 5)
        == 0.0
    )


def test_an_answers_value_is_the_mean_of_its_responses() -> None:
    # "18" always wins; its two responses got 1.0 and 0.5 (a format reward differed)
    assert majority_at_k(["18", "18", "20"], np.asarray([1.0, 0.5, 0.0]), 3) == 0.75


@given(VALUES, st.data())
def test_best_and_worst_are_those_of_all_subsets(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    subsets = list(itertools.combinations(values, k))
    for of, pick in ((best_at_k, max), (worst_at_k, min)):
        found = np.asarray([pick(subset) for subset in subsets])
        mean, std = of(np.asarray(values), k)
        assert mean == pytest.approx(found.mean(), abs=1e-9)
        assert std == pytest.approx(found.std(), abs=1e-6)


@given(ROWS, st.data())
@settings(max_examples=200)
def test_the_majority_is_that_of_all_subsets(
    rows: list[tuple[str, float]], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(rows)))
    values = np.asarray([value for _, value in rows])
    mean_of = {
        answer: values[[i for i, (a, _) in enumerate(rows) if a == answer]].mean()
        for answer, _ in rows
    }
    found = []
    for subset in itertools.combinations([answer for answer, _ in rows], k):
        counts = Counter(subset)
        winners = [answer for answer, count in counts.items() if count == max(counts.values())]
        found.append(np.mean([mean_of[answer] for answer in winners]))
    assert majority_at_k([answer for answer, _ in rows], values, k) == pytest.approx(
        np.mean(found), abs=1e-9
    )


def test_the_shares_of_all_answers_add_up_to_one() -> None:
    sizes = (1, 1, 2, 3, 5, 5, 9)
    for k in (1, 2, 7, 16, 26):
        assert sum(win_shares(sizes, k)[size] for size in sizes) == pytest.approx(1.0)


def test_many_responses_are_quick() -> None:
    began = time.process_time()
    win_shares((1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 10, 14), 32)  # 64 responses, 13 answers
    assert time.process_time() - began < 30


def test_the_standard_error_is_what_resampling_prompts_gives() -> None:
    values = [0.0, 1.0, 0.25, 0.75, 1.0]
    mean, error = mean_over_prompts(values)
    # (0.6^2 + 0.4^2 + 0.35^2 + 0.15^2 + 0.4^2) / 5 = 0.165; sqrt(0.165 / 5)
    assert (mean, error) == (pytest.approx(0.6), pytest.approx(math.sqrt(0.033)))
    draws = np.random.default_rng(0).choice(values, size=(20_000, len(values))).mean(axis=1)
    assert draws.std() == pytest.approx(error, rel=0.02)


def test_the_chosen_of_k_is_worth_its_gold():
    values = np.array([0.1, 0.9, 0.5])
    gold = np.array([1.0, 0.0, 1.0])
    # Of the three pairs two choose the second response, one the third.
    assert chosen_at_k(values, gold, 2) == pytest.approx(1 / 3)
    assert chosen_at_k(values, gold, 1) == pytest.approx(2 / 3)
    assert chosen_at_k(values, gold, 3) == 0
    assert chosen_at_k(np.ones(3), gold, 3) == pytest.approx(2 / 3)  # ties share the places

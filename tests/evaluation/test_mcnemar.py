"""McNemar's test over verdicts: by hand, against scipy's binomial test, and with several responses
to a prompt."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest

from rmrl.evaluation.compare.mcnemar import mcnemar, sign_flips


def verdicts(a: list[float], b: list[float], prompts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([a, b], dtype=np.float64), np.array(prompts)


def test_by_hand() -> None:
    # Only a is right once, only b five times: 2 * (1 + 6) / 2**6.
    tested = mcnemar(verdicts([1, 0, 0, 0, 0, 0, 1, 0], [0, 1, 1, 1, 1, 1, 1, 0], list(range(8))))
    assert tested is not None
    p = tested.pop("p")
    assert tested == {"same": 2, "only_a": 1, "only_b": 5, "prompts": 8}
    assert p == pytest.approx(14 / 64)


@pytest.mark.parametrize("seed", range(5))
def test_one_response_per_prompt_is_the_exact_binomial_test(seed: int) -> None:
    draw = np.random.default_rng(seed)
    count = int(draw.integers(20, 3000))
    a, b = draw.integers(0, 2, (2, count))
    tested = mcnemar(verdicts(a.tolist(), b.tolist(), list(range(count))))
    assert tested is not None
    only_a = int(((a == 1) & (b == 0)).sum())
    only_b = int(((a == 0) & (b == 1)).sum())
    assert (tested["only_a"], tested["only_b"]) == (only_a, only_b)
    assert tested["p"] == pytest.approx(binomtest(only_a, only_a + only_b).pvalue, rel=1e-6)


def test_responses_to_one_prompt_count_together() -> None:
    # Two prompts of eight responses that all go one way: 2 of 4 choices of signs are as far off.
    tested = mcnemar(verdicts([0] * 16, [1] * 16, [0] * 8 + [1] * 8))
    assert tested is not None
    assert (tested["only_b"], tested["prompts"]) == (16, 2)
    assert tested["p"] == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(5))
def test_signs_are_those_of_trying_all(seed: int) -> None:
    gains = np.random.default_rng(seed).integers(-4, 5, 9)
    sums = np.array([np.dot(signs, gains) for signs in product((-1, 1), repeat=9)])
    share = (np.abs(sums) >= abs(gains.sum())).mean()
    assert sign_flips(gains) == pytest.approx(share)


def test_a_judge_is_no_better_than_itself_and_ties_are_halves() -> None:
    tested = mcnemar(verdicts([1, 0, 1], [1, 0, 1], [0, 1, 2]))
    assert tested is not None
    assert (tested["same"], tested["p"]) == (3, 1.0)
    # Gains of 1/2 and 1: of the sums 3, 1, -1, -3 two are as far off as 3.
    tie = mcnemar(verdicts([0.5, 0], [1, 1], [0, 1]))
    assert tie is not None
    assert tie["p"] == pytest.approx(0.5)


def test_chance_is_found_as_often_as_the_level_says() -> None:
    draw = np.random.default_rng(3)
    found = 0
    for _ in range(400):
        # 30 prompts of 8 responses which share what makes them easy for either judge.
        easy = draw.random((2, 30, 1))
        a, b = (draw.random((2, 30, 8)) < easy).astype(float).reshape(2, -1)
        tested = mcnemar(verdicts(a.tolist(), b.tolist(), np.repeat(np.arange(30), 8).tolist()))
        assert tested is not None
        found += tested["p"] < 0.05
    # 20 of 400 expected, at most 33 in 99.9 of 100 such tests; the plain test finds over 100.
    assert found <= 33


def test_scores_are_no_verdicts() -> None:
    assert mcnemar(verdicts([0.3, 1], [0, 1], [0, 1])) is None
    assert mcnemar((np.zeros((2, 0)), np.zeros(0, dtype=np.int64))) is None

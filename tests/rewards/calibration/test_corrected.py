"""The corrected share of good responses: by hand, by simulation, and where it is undefined."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rmrl.rewards.calibration.corrected import corrected_share
from rmrl.rewards.transforms.probability_map import Verdicts


def test_a_share_and_its_interval_by_hand() -> None:
    verdicts = Verdicts(good=100, good_accepted=90, bad=100, bad_accepted=20)
    made = corrected_share(550, 1000, verdicts)
    # (0.55 + 0.8 - 1) / (0.9 + 0.8 - 1)
    assert made.value == pytest.approx(0.5)
    assert (made.accepted, made.count) == (0.55, 1000)
    # n = 1003.84, p = 0.549809; a = 91/102, b = 81/102; theta = 0.343927 / 0.686275 = 0.501151;
    # variance 0.00024657 + 0.251152 * 0.0009433 + 0.248850 * 0.0016029 = 0.00088236;
    # half 1.95996 * 0.029705 / 0.686275 = 0.084836, shift 7.682918 * -0.00032688 = -0.002511.
    assert made.low == pytest.approx(0.413804, abs=2e-5)
    assert made.high == pytest.approx(0.583476, abs=2e-5)


def test_counts_of_fewer_independent_responses_have_their_interval() -> None:
    few = Verdicts(good=100, good_accepted=90, bad=100, bad_accepted=20)
    many = Verdicts(
        good=400, good_accepted=360, bad=800, bad_accepted=160,
        good_independent=100.0, bad_independent=100.0,
    )  # fmt: skip
    expected = corrected_share(550, 1000, few)
    estimate = corrected_share(2200, 4000, many, independent=1000.0)
    assert estimate.low == pytest.approx(expected.low)
    assert estimate.high == pytest.approx(expected.high)


def test_a_perfect_judge_is_not_corrected() -> None:
    verdicts = Verdicts(good=1000, good_accepted=1000, bad=1000, bad_accepted=0)
    made = corrected_share(300, 1000, verdicts)
    assert made.value == pytest.approx(0.3)
    assert made.low == pytest.approx(0.2725, abs=5e-3)  # Wilson's interval of 300 of 1000
    assert made.high == pytest.approx(0.3292, abs=5e-3)


def test_the_share_stays_within_0_and_1() -> None:
    verdicts = Verdicts(good=100, good_accepted=90, bad=100, bad_accepted=20)
    assert corrected_share(50, 1000, verdicts).value == 0.0
    assert corrected_share(990, 1000, verdicts).value == 1.0


def test_a_judge_no_better_than_chance_has_no_estimate() -> None:
    verdicts = Verdicts(good=100, good_accepted=40, bad=100, bad_accepted=40)
    made = corrected_share(400, 1000, verdicts)
    assert (made.value, made.low, made.high) == (None, None, None)
    assert made.accepted == 0.4


@pytest.mark.parametrize(
    "verdicts",
    [
        # 18/55 + 27/40 - 1 = 0.002 as counted, 19/57 + 28/42 - 1 = 0 after the adjustment
        Verdicts(good=55, good_accepted=18, bad=40, bad_accepted=13),
        # 3/55 + 38/40 - 1 = 0.005 as counted, 4/57 + 39/42 - 1 = -0.001 after the adjustment
        Verdicts(good=55, good_accepted=3, bad=40, bad_accepted=2),
    ],
)
def test_a_judge_that_the_adjustment_makes_one_by_chance_has_no_estimate(
    verdicts: Verdicts,
) -> None:
    made = corrected_share(30, 100, verdicts)
    assert (made.value, made.low, made.high) == (None, None, None)


def test_the_interval_holds_the_estimate_for_any_counts() -> None:
    estimates = 0
    for good, bad in itertools.product((1, 5, 7, 40, 55), (1, 5, 20, 40, 300)):
        good_steps = range(0, good + 1, max(1, good // 10))
        bad_steps = range(0, bad + 1, max(1, bad // 10))
        for good_accepted, bad_accepted in itertools.product(good_steps, bad_steps):
            verdicts = Verdicts(
                good=good, good_accepted=good_accepted, bad=bad, bad_accepted=bad_accepted
            )
            for accepted in (0, 3, 50, 99, 100):
                made = corrected_share(accepted, 100, verdicts)
                if made.value is None or made.low is None or made.high is None:
                    continue
                estimates += 1
                assert 0 <= made.low <= made.value <= made.high <= 1, (verdicts, made)
    assert estimates > 2000


@pytest.mark.parametrize("share", [0.1, 0.5, 0.85])
def test_the_interval_holds_the_true_share_as_often_as_it_states(share: float) -> None:
    draw = np.random.default_rng(7)
    sensitivity = 0.8
    specificity = 0.7
    inside = 0
    naive = 0
    for _ in range(1000):
        good_accepted = int(draw.binomial(80, sensitivity))
        bad_accepted = int(draw.binomial(120, 1 - specificity))
        verdicts = Verdicts(
            good=80, good_accepted=good_accepted, bad=120, bad_accepted=bad_accepted
        )
        accepted = int(draw.binomial(500, share * sensitivity + (1 - share) * (1 - specificity)))
        made = corrected_share(accepted, 500, verdicts)
        assert made.low is not None
        assert made.high is not None
        inside += made.low <= share <= made.high
        naive += abs(made.accepted - share) < 0.044  # 1.96 sqrt(0.25 / 500)
    assert 930 <= inside <= 985
    assert naive < 900

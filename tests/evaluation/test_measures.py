"""Statistics against hand-computed and published numbers."""

from __future__ import annotations

import math
import random

import pytest
from scipy.stats import spearmanr

from rmrl.evaluation.items import Comparison, Item
from rmrl.evaluation.judgements import Judgement, Outcome, outcome_of
from rmrl.evaluation.measures.agreement import alpha, alpha_of_numbers, kappa
from rmrl.evaluation.measures.calibration import curve, of_choices
from rmrl.evaluation.measures.correlation import correlation
from rmrl.evaluation.measures.length import controls, length_bias, longer_response
from rmrl.evaluation.measures.people import against_values
from rmrl.evaluation.measures.shares import share
from rmrl.evaluation.measures.weights import best_weights, score_differences

PAIR = Comparison(subset="s", candidates=(0, 1), good=frozenset({0}))


def pair_outcome(*scores: float, item: int = 0) -> Outcome:
    return outcome_of(item, PAIR, Judgement(scores=scores), ties="share", orders="mean")


# --- shares


def test_a_share_has_wilsons_interval() -> None:
    # 8 of 10, z = 1.95996: (0.8 + z^2/20 +- z sqrt(0.016 + z^2/400)) / (1 + z^2/10)
    made = share([1.0] * 8 + [0.0] * 2, confidence=0.95, seed=1)
    assert (made["value"], made["count"], made["interval"]) == (0.8, 10, "wilson")
    assert made["low"] == pytest.approx(0.49016, abs=1e-5)
    assert made["high"] == pytest.approx(0.94332, abs=1e-5)


def test_halves_have_a_bootstrap_interval_that_a_seed_fixes() -> None:
    credits = [1.0, 0.5, 0.0, 1.0, 0.5] * 20
    made = share(credits, confidence=0.95, seed=3)
    assert made == share(credits, confidence=0.95, seed=3)
    assert made["interval"] == "bootstrap"
    assert made["value"] == pytest.approx(0.6)
    # Standard deviation 0.374, so that the mean of 100 moves by 1.96 * 0.0374 = 0.073.
    assert made["high"] - made["low"] == pytest.approx(0.147, abs=0.02)
    assert share([0.5, 0.5], confidence=0.95, seed=3)["low"] == 0.5


def test_no_credit_no_share() -> None:
    assert share([], confidence=0.95, seed=1)["value"] is None


# --- agreement


def test_kappa_of_two_raters() -> None:
    # 20 yes-yes, 15 no-no, 5 yes-no, 10 no-yes: observed 0.7, by chance 0.5 * 0.6 + 0.5 * 0.4.
    first = ["y"] * 25 + ["n"] * 25
    second = ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15
    assert kappa(first, second) == pytest.approx(0.4)
    assert kappa([*first, "y"], [*second, ""]) == pytest.approx(0.4)
    assert kappa(["y", "y"], ["y", "y"]) is None


PUBLISHED = """
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 .
"""


def test_alpha_of_the_published_example() -> None:
    """Krippendorff 2011, section C: 4 observers, 12 units, gaps; 0.743 for categories, 0.849 for
    numbers."""
    raters = [
        [None if cell == "." else int(cell) for cell in line.split()]
        for line in PUBLISHED.strip().splitlines()
    ]
    units = list(zip(*raters, strict=True))
    assert alpha(units) == pytest.approx(0.743, abs=5e-4)
    assert alpha_of_numbers(units) == pytest.approx(0.849, abs=5e-4)


def test_alpha_without_any_disagreement_to_expect() -> None:
    assert alpha([("a", "a"), ("a", "a")]) is None
    assert alpha([]) is None
    assert alpha_of_numbers([(2.0, 2.0), (2.0, None)]) is None
    assert alpha_of_numbers([]) is None


def test_alpha_of_as_many_different_numbers_as_rewards_give() -> None:
    """A sum over each two of them would be one of 4e10 terms. Pairs (i, i + 1) for i = 0, 2, 4 ...
    disagree by 1, and all n = 100,000 numbers have the variance (n^2 - 1) / 12: alpha is
    1 - (n - 1) n / (2 n^2 (n^2 - 1) / 12) = 1 - 6 / (n (n + 1))."""
    n = 100_000
    pairs = [(float(i), float(i + 1)) for i in range(0, n, 2)]
    assert alpha_of_numbers(pairs) == pytest.approx(1 - 6 / (n * (n + 1)), abs=1e-12)
    assert alpha_of_numbers(pairs[:2]) == pytest.approx(1 - 6 / (4 * 5))


# --- calibration


def test_a_curve_by_hand() -> None:
    made = curve([0.1, 0.3, 0.9, 0.7], [0, 1, 1, 1], bins=2)
    assert made is not None
    assert made["curve"] == [
        {"confidence": pytest.approx(0.2), "frequency": 0.5, "count": 2},
        {"confidence": pytest.approx(0.8), "frequency": 1.0, "count": 2},
    ]
    # (0.01 + 0.49 + 0.01 + 0.09) / 4; half of |0.5 - 0.2| and half of |1 - 0.8|.
    assert made["brier"] == pytest.approx(0.15)
    assert made["ece"] == pytest.approx(0.25)
    assert curve([0.5, 1.5], [0, 1], bins=2) is None


def test_the_confidence_in_a_pair_is_that_of_bradley_and_terry() -> None:
    tie = pair_outcome(1.0, 1.0)
    made = of_choices([pair_outcome(2.0, 1.0), pair_outcome(1.0, 2.0), tie], bins=10)
    assert made is not None
    sure = 1 / (1 + math.exp(-1))
    assert made["count"] == 2
    assert made["curve"] == [{"confidence": pytest.approx(sure), "frequency": 0.5, "count": 2}]
    assert made["ece"] == pytest.approx(sure - 0.5)


# --- length


def texts(*responses: str) -> Item:
    return Item(id="i", subset="s", prompt="p", responses=responses, comparisons=(PAIR,))


def test_blind_controls_see_length_and_answers_only() -> None:
    items = [
        Item(id="i", subset="s", prompt="p", responses=("aa", "b", "c"), answers=("1", "2", "2"))
    ]
    made = controls(items, seed=1)
    assert made["longest"][0].scores == (2, 1, 1)
    assert made["shortest"][0].scores == (-2, -1, -1)
    assert made["majority"][0].scores == (1, 2, 2)
    assert made["random"] == controls(items, seed=1)["random"] != controls(items, seed=2)["random"]
    assert set(controls([texts("", "")], seed=1)) == {"random"}


def test_length_bias_by_hand() -> None:
    items = [
        texts("long text", "short"),
        texts("a", "longer"),
        texts("b", "longer"),
        texts("xx", "yy"),
    ]
    scores = [(3.0, 1.0), (0.0, 2.0), (2.0, 1.0), (1.0, 0.0)]
    outcomes = [pair_outcome(*pair, item=i) for i, pair in enumerate(scores)]
    made = length_bias(items, outcomes, confidence=0.95, seed=1)
    assert made is not None
    assert made["label_longer"]["value"] == pytest.approx(1 / 3)
    assert made["picks_longer"]["value"] == pytest.approx(2 / 3)
    assert made["better_is_longer"]["value"] == 1
    assert made["better_is_shorter"]["value"] == 0.5
    # Differences of scores (2, -2, 1), of lengths (4, -5, -5): ranks 3 1 2 and 3 1.5 1.5.
    assert made["spearman"] == pytest.approx(0.866, abs=1e-3)


# --- people's numbers


def test_scores_against_peoples_numbers() -> None:
    made = against_values([1.0, 2.0, 4.0, None], [1.0, 3.0, 5.0, 2.0], bins=10)
    assert made["count"] == 3
    assert made["pearson"] == pytest.approx(0.98198, abs=1e-5)  # 6 / sqrt(4.6667 * 8)
    assert (made["spearman"], made["kendall"]) == (pytest.approx(1), pytest.approx(1))
    assert "auc" not in made


def test_right_and_wrong_have_a_curve() -> None:
    made = against_values([0.9, 0.2, 0.6, 0.4], [1.0, 0.0, 0.0, 1.0], bins=2)
    assert made["auc"] == 0.75  # of the four pairs (right, wrong) only 0.4 against 0.6 is wrong
    assert made["calibration"]["count"] == 4
    assert against_values([9.0, 2.0], [1.0, 0.0], bins=2)["calibration"] is None


# --- weights


def test_the_weights_find_the_reward_that_people_follow() -> None:
    draw = random.Random(0)
    truth = [draw.gauss(0.8, 1) for _ in range(400)]
    good = [pair_outcome(value + draw.gauss(0, 0.3), 0.0) for value in truth]
    noise = [pair_outcome(draw.gauss(0, 1), 0.0) for _ in truth]
    made = best_weights({"good": good, "noise": noise}, confidence=0.95, seed=1)
    assert made is not None
    assert made["count"] == 400
    assert made["weights"]["good"] > 0.8
    assert abs(made["weights"]["good"]) + abs(made["weights"]["noise"]) == pytest.approx(1)
    assert made["accuracy"]["value"] > made["equal"]["value"] > made["single"]["noise"]["value"]


def test_a_rewards_scale_moves_its_weight_alone() -> None:
    draw = random.Random(0)
    truth = [draw.gauss(0.8, 1) for _ in range(200)]
    noisy = [(value + draw.gauss(0, 1), value + draw.gauss(0, 2)) for value in truth]
    results = []
    for scale in (1.0, 100.0):
        first = [pair_outcome(scale * one, 0.0) for one, _ in noisy]
        second = [pair_outcome(two, 0.0) for _, two in noisy]
        results.append(best_weights({"a": first, "b": second}, confidence=0.95, seed=1))
    small, large = results
    assert small is not None
    assert large is not None
    ratio = small["weights"]["a"] / small["weights"]["b"]
    assert large["weights"]["a"] / large["weights"]["b"] == pytest.approx(ratio / 100, rel=1e-6)
    for name in ("accuracy", "equal", "single"):
        assert large[name] == small[name]


def test_weights_need_two_rewards_and_fifty_pairs() -> None:
    outcomes = [pair_outcome(1.0, 0.0)] * 60
    assert best_weights({"one": outcomes}, confidence=0.95, seed=1) is None
    few = {"one": outcomes[:49], "two": outcomes[:49]}
    assert best_weights(few, confidence=0.95, seed=1) is None


def test_differences_are_of_the_better_response_and_of_pairs_that_all_rewards_scored() -> None:
    second = Comparison(subset="s", candidates=(0, 1), good=frozenset({1}))
    label_second = outcome_of(0, second, Judgement(scores=(3.0, 1.0)), ties="share", orders="mean")
    unscored = outcome_of(0, PAIR, Judgement(scores=(1.0, None)), ties="share", orders="mean")
    columns = [
        [pair_outcome(3.0, 1.0), label_second, pair_outcome(1.0, 0.0)],
        [pair_outcome(0.0, 1.0), label_second, unscored],
    ]
    assert score_differences(columns).tolist() == [[2.0, -1.0], [-2.0, -2.0]]
    assert score_differences([]).shape == (0, 0)


def test_the_longer_response_of_a_pair() -> None:
    texts = (("long", "a"), ("a", "long"), ("same", "text"))
    items = [Item(id="i", subset="s", prompt="p", responses=pair) for pair in texts]
    longer = [longer_response(item, pair_outcome(1.0, 0.0)) for item in items]
    assert longer == [0, 1, None]


def test_a_correlation_needs_two_different_values_on_both_sides() -> None:
    assert correlation(spearmanr, [1.0, 2.0, 3.0], [1.0, 4.0, 9.0]) == pytest.approx(1.0)
    assert correlation(spearmanr, [1.0, 1.0], [1.0, 2.0]) is None
    assert correlation(spearmanr, [], []) is None

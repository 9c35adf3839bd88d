"""Values of criteria become one score, a set of columns, and which criteria count in a step."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.rewards.kinds.rubric.columns import MOST_PLACES, column_name, criterion_columns
from rmrl.rewards.kinds.rubric.combine import all_pass, signed_mean, weighted_mean, weights_problem
from rmrl.rewards.kinds.rubric.criteria import Criterion, Verdict
from rmrl.rewards.kinds.rubric.dropout import kept_criteria


def verdicts(*pairs: tuple[float, float], **fields: Any) -> list[Verdict]:
    """(weight, value) of each criterion; it passes from 0.5."""
    made: list[Verdict] = []
    for number, (weight, value) in enumerate(pairs, start=1):
        criterion = Criterion(text=f"c{number}", weight=weight, **fields)
        passed = criterion.passes(value, 0.5)
        made.append(
            Verdict(number=number, criterion=criterion, value=value, passed=passed, shares={})
        )
    return made


def test_means() -> None:
    # HealthBench: (7 * 1 + 3 * 0 - 5 * 1) / (7 + 3) = 0.2
    assert weighted_mean(verdicts((7, 1), (3, 0), (-5, 1))) == pytest.approx(0.2)
    # (7 * 0.9 + 3 * 0.5 - 5 * 0.2) / 10 = 0.68
    assert weighted_mean(verdicts((7, 0.9), (3, 0.5), (-5, 0.2))) == pytest.approx(0.68)
    # faults outweigh: (1 * 0.5 - 4 * 1) / 1
    assert weighted_mean(verdicts((1, 0.5), (-4, 1))) == pytest.approx(-3.5)
    # open-instruct: (7 * 0.9 + 3 * 0.5 - 5 * 0.2) / 15 = 6.8 / 15
    assert signed_mean(verdicts((7, 0.9), (3, 0.5), (-5, 0.2))) == pytest.approx(6.8 / 15)
    assert signed_mean(verdicts((1, 0), (-1, 1))) == -0.5
    # a criterion of weight 0 is watched alone
    assert weighted_mean(verdicts((1, 1), (0, 0))) == 1.0


def test_all_pass() -> None:
    assert all_pass(verdicts((1, 0.5), (-3, 0.1))) == 1.0
    assert all_pass(verdicts((1, 0.49), (1, 1))) == 0.0
    assert all_pass(verdicts((1, 1), (-3, 0.6))) == 0.0
    assert all_pass([*verdicts((1, 1)), *verdicts((1, 0), optional=True)]) == 1.0


def test_weights_that_give_no_score() -> None:
    faults = [Criterion(text="a", weight=-1)]
    assert "positive weight" in weights_problem(faults, "weighted_mean")
    assert weights_problem(faults, "signed_mean") == ""
    assert weights_problem(faults, "all_pass") == ""
    assert "all weights are 0" in weights_problem([Criterion(text="a", weight=0)], "signed_mean")


def test_columns_are_bounded() -> None:
    judged = [
        Verdict(number=1, criterion=Criterion(text="a", name="Is Right!"), value=1.0, passed=True, shares={}),
        Verdict(number=2, criterion=Criterion(text="b", name="rare"), value=0.5, passed=True, shares={}),
        Verdict(number=3, criterion=Criterion(text="c", name="tone", tags=("axis:a", "x")), value=0.25, passed=False, shares={}),
        Verdict(number=4, criterion=Criterion(text="d", tags=("axis:a",)), value=0.75, passed=True, shares={}),
        Verdict(number=MOST_PLACES + 1, criterion=Criterion(text="e"), value=0.0, passed=False, shares={}),
    ]  # fmt: skip
    assert criterion_columns(judged, configured=1, chosen=["tone", "axis:a"]) == {
        "is_right": 1.0,
        "criterion_2": 0.5,
        "tone": 0.25,
        "criterion_4": 0.75,
        "axis_a": 0.5,  # of 0.25 and 0.75
    }
    assert column_name("  Über alles: ja ") == "über_alles_ja"


def test_no_column_replaces_another_one() -> None:
    def verdict(number: int, name: str, *tags: str) -> Verdict:
        criterion = Criterion(text="a", name=name, tags=tags)
        return Verdict(
            number=number, criterion=criterion, value=number / 10, passed=True, shares={}
        )

    judged = [
        verdict(1, "Tone", "tone"),
        verdict(2, "tone!"),
        verdict(3, "passed", "criteria"),
        verdict(4, "criterion_5", "tone"),
        verdict(5, ""),
    ]
    chosen = ["Tone", "tone!", "tone", "passed", "criteria", "criterion_5"]
    assert criterion_columns(judged, configured=0, chosen=chosen) == pytest.approx(
        {
            "tone": 0.1,
            "criterion_2": 0.2,
            "criterion_3": 0.3,
            "criterion_4": 0.4,
            "criterion_5": 0.5,
            "tag_tone": 0.25,  # of 0.1 and 0.4
            "tag_criteria": 0.3,
        }
    )


def test_dropout_leaves_a_share_out_and_depends_on_prompt_and_step_alone() -> None:
    criteria = [Criterion(text=str(i), must_have=i < 2) for i in range(12)]
    first = kept_criteria(criteria, 0.3, seed="p\n1", combine="weighted_mean")
    assert len(first) == 9  # floor(0.3 * 10) of those that are not must_have are left out
    assert first == sorted(first)
    assert first == kept_criteria(criteria, 0.3, seed="p\n1", combine="weighted_mean")
    draws: set[tuple[int, ...]] = set()
    for step in range(50):
        seed = f"p\n{step}"
        draws.add(tuple(kept_criteria(criteria, 0.3, seed=seed, combine="weighted_mean")))
    assert len(draws) > 30  # of 120 choices of 3 of 10
    assert all({0, 1} <= set(draw) for draw in draws)
    counts = [sum(i in draw for draw in draws) for i in range(2, 12)]
    assert min(counts) > 0.4 * len(draws)  # every criterion is judged in most steps
    everything = kept_criteria(criteria, 0.0, seed="p\n1", combine="weighted_mean")
    assert everything == list(range(12))


def test_dropout_keeps_a_positive_weight() -> None:
    criteria = [Criterion(text="good"), *[Criterion(text=str(i), weight=-1) for i in range(3)]]
    for step in range(20):
        kept = kept_criteria(criteria, 0.9, seed=str(step), combine="weighted_mean")
        assert 0 in kept
        assert len(kept) == 1  # floor(0.9 * 4) = 3 are left out
    only = [Criterion(text="only")]
    assert kept_criteria(only, 0.99, seed="s", combine="weighted_mean") == [0]


def test_dropout_keeps_what_the_score_rests_on() -> None:
    faults = [Criterion(text=str(i), weight=-1) for i in range(4)]
    watched = Criterion(text="watched", weight=0)
    nice = [Criterion(text=f"nice {i}", optional=True) for i in range(3)]
    required = Criterion(text="required")
    for step in range(20):
        # floor(0.5 * 4) = 2 of the faults are left out, by whose weights signed_mean divides
        assert len(kept_criteria(faults, 0.5, seed=str(step), combine="signed_mean")) == 2
        # floor(0.9 * 5) = 4; one of the faults stays beside or without the one of weight 0
        kept = kept_criteria([watched, *faults], 0.9, seed=str(step), combine="signed_mean")
        assert set(kept) - {0}
        # floor(0.9 * 4) = 3: the optional ones, since the only required one stays
        kept = kept_criteria([*nice, required], 0.9, seed=str(step), combine="all_pass")
        assert kept == [3]
        # all are optional: one of them stays
        assert len(kept_criteria(nice, 0.9, seed=str(step), combine="all_pass")) == 1

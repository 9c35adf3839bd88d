"""Ensembles: numbers worked out by hand, and members without a verdict."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rmrl.rewards.kinds.ensemble.reward import Ensemble, combined_scores, ensemble_results
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.transforms import chain_of
from rmrl.types import ScoreResult
from tests.rewards.parts import problems_of


def options(*of: str, **more: Any) -> Any:
    return Ensemble.Options(of=list(of), **more)


def scored(value: float | None, status: Any = "ok", **more: Any) -> ScoreResult:
    return ScoreResult(value=value, status=status, **more)


def values_of(how: str, *columns: list[float], k: float = 1.0) -> list[float]:
    members = [[scored(v) for v in column] for column in columns]
    names = [f"m{i}" for i in range(len(columns))]
    results = ensemble_results(members, np.asarray(columns), options(*names, how=how, k=k), "e")
    return [round(r.value, 9) for r in results if r.value is not None]


def test_the_four_ways():
    columns = ([1.0, 4.0], [3.0, 4.0], [8.0, 4.0])
    assert values_of("mean", *columns) == [4.0, 4.0]
    assert values_of("min", *columns) == [1.0, 4.0]
    assert values_of("median", *columns) == [3.0, 4.0]
    # deviations -3 -1 4: unbiased variance 26 / 2
    assert values_of("lower_bound", *columns) == [round(4 - math.sqrt(13), 9), 4.0]
    assert values_of("lower_bound", *columns, k=0.0) == [4.0, 4.0]


def test_ensemble_and_standardize_divide_by_the_same():
    # 1, 2, 3: unbiased std 1, that of the population 0.816
    assert values_of("lower_bound", [1.0], [2.0], [3.0]) == [1.0]
    group = Rows(
        group_ids_B=np.zeros(3, dtype=np.int64),
        lengths_B=np.ones(3),
        truncated_B=np.zeros(3, dtype=bool),
        sources=("",) * 3,
    )
    for by in ("group", "batch", "running"):
        chain = chain_of([{"kind": "standardize", "by": by, "eps": 0.0}], "w")
        np.testing.assert_allclose(
            chain.apply(np.asarray([1.0, 2.0, 3.0]), group, np.ones(3, dtype=bool)),
            [-1.0, 0.0, 1.0],
        )
        chain = chain_of([{"kind": "standardize", "by": by, "eps": 0.0}], "w")
        assert chain.apply(
            np.asarray([7.0]), group.select([0]), np.ones(1, dtype=bool)
        ).tolist() == [0.0]  # a single score


def test_the_transformed_scores_count_and_stand_in_extra():
    members = [[scored(100.0)], [scored(200.0)]]
    [result] = ensemble_results(members, np.asarray([[0.1], [0.3]]), options("a", "b"), "e")
    assert result.value == pytest.approx(0.2)
    assert result.extra == {"a": 0.1, "b": 0.3}


def test_a_missing_member_makes_the_ensemble_missing():
    members = [[scored(1.0)], [scored(None, "timeout", detail="after 10 s")]]
    [result] = ensemble_results(members, np.asarray([[1.0], [np.nan]]), options("a", "b"), "judges")
    assert (result.value, result.status) == (None, "timeout")
    assert (
        result.detail == "ensemble 'judges': its member 'b' gave no verdict (timeout): after 10 s"
    )
    assert result.extra == {"a": 1.0, "b": None}


def test_a_skipped_member_skips_and_a_failure_goes_first():
    skipped, failed = scored(None, "skipped", detail="gate closed"), scored(None, "unparseable")
    nan = np.full((3, 1), np.nan)
    [result] = ensemble_results([[skipped], [skipped], [skipped]], nan, options("a", "b", "c"), "e")
    assert result.status == "skipped"
    assert (
        result.detail
        == "ensemble 'e': its member 'a' was skipped (3 of 3 members lack one): gate closed"
    )
    [result] = ensemble_results([[skipped], [failed], [failed]], nan, options("a", "b", "c"), "e")
    assert result.status == "unparseable"
    assert (
        result.detail
        == "ensemble 'e': its member 'b' gave no verdict (unparseable) (2 of 3 members lack one)"
    )


def test_a_member_that_was_not_asked_is_no_failure():
    unasked, failed = scored(None, "unparseable", unasked=True), scored(None, "unparseable")
    nan = np.full((2, 1), np.nan)
    [result] = ensemble_results([[unasked], [unasked]], nan, options("a", "b"), "e")
    assert (result.status, result.unasked) == ("unparseable", True)
    [result] = ensemble_results([[unasked], [failed]], nan, options("a", "b"), "e")
    assert (result.status, result.unasked) == ("unparseable", False)


def test_costs_are_those_of_the_members():
    members = [
        [scored(1.0, latency_s=2.0, tokens_in=10, tokens_out=3, cached=True)],
        [scored(1.0, latency_s=1.0, tokens_in=5, tokens_out=0)],
    ]
    [result] = ensemble_results(members, np.ones((2, 1)), options("a", "b"), "e")
    assert (result.latency_s, result.tokens_in, result.tokens_out, result.cached) == (
        2.0,
        15,
        3,
        False,
    )


def test_no_rows():
    assert ensemble_results([[], []], np.zeros((2, 0)), options("a", "b"), "e") == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (options(), "reward.specs.e.of=[]: name at least two rewards"),
        (options("a", "a"), "reward.specs.e.of names one reward twice (a, a)"),
        (
            options("a", "b", how="maen"),
            "reward.specs.e.how='maen': not a choice; did you mean 'mean'?",
        ),
        (
            options("a", "b", how="lower_bound", k=-1.0),
            "reward.specs.e.k=-1.0: must not be negative",
        ),
        (
            options("a", "b", k=2.0),
            "reward.specs.e.k belongs to how: lower_bound and has no effect on mean",
        ),
    ],
)
def test_errors_state_the_problem(given: Any, said: str):
    [problem] = Ensemble.problems(given, "reward.specs.e")
    assert problem.startswith(said)


def test_members_are_a_list():
    [problem] = problems_of(Ensemble, {"of": "ab"}, "reward.specs.e")
    assert problem == "reward.specs.e.of='ab': give a list, each a name"


def test_what_is_right():
    assert Ensemble.problems(options("a", "b", how="lower_bound", k=2.0), "w") == []
    assert Ensemble.roles == {}


def test_combined_scores_of_two_members():
    values_MB = np.asarray([[1.0, 0.0], [3.0, 4.0]])
    assert combined_scores(values_MB, "mean").tolist() == [2.0, 2.0]
    assert combined_scores(values_MB, "min").tolist() == [1.0, 0.0]
    assert combined_scores(values_MB, "median").tolist() == [2.0, 2.0]
    # 2 - sqrt(2): the std of 1 and 3 with M - 1 is sqrt(2), that of 0 and 4 is sqrt(8).
    assert combined_scores(values_MB, "lower_bound", 1.0) == pytest.approx([0.585786, -0.828427])

"""The report as text: each block against lines written by hand."""

from __future__ import annotations

from typing import Any

from rmrl.evaluation.eval_tables import (
    accuracies,
    against_people,
    aligned,
    best_weights,
    details,
    published_figures,
)


def accuracy(value: float, low: float, high: float) -> dict[str, Any]:
    return {"value": value, "low": low, "high": high}


def test_the_first_column_is_left_and_the_others_right() -> None:
    assert aligned([["a", "12.0"], ["longer", "1"]]) == "a       12.0\nlonger     1"


def test_accuracies_have_a_column_per_subset_where_there_are_two() -> None:
    judge = {
        "accuracy": accuracy(0.5, 0.1, 0.9),
        "by_subset": {"math": {"value": 1.0}, "code": {"value": 0.0}},
        "tied": 1,
        "missing": 2,
    }
    control = {"accuracy": accuracy(0.25, 0.0, 0.5), "by_subset": {}, "tied": 0, "missing": 0}
    lines = aligned(accuracies({"a": judge}, {"random": control})).splitlines()
    assert lines[0].split() == ["accuracy", "all", "interval", "code", "math", "tied", "missing"]
    assert lines[1].split() == [
        *("a", "50.0", "%", "10.0", "%", "..", "90.0", "%", "0.0", "%", "100.0", "%", "1", "2")
    ]
    assert lines[2].split()[:3] == ["(random)", "25.0", "%"]
    one = {**judge, "by_subset": {"math": {"value": 1.0}}}
    assert "math" not in accuracies({"a": one}, {})[0]


def test_numbers_of_people_and_shares_without_a_value_are_dashes() -> None:
    values = {"count": 3, "missing": 0, "pearson": 0.5, "equal": {"value": None}}
    _, row = against_people({"a": {"values": values}})
    assert row == ["a", "3", "0", "0.500", "-", "-", "-", "-", "-"]


def test_published_figures_are_a_line_each() -> None:
    judges = {"a": {"figures": {"score": 0.5}}, "b": {"figures": {"score": None}}}
    assert published_figures(judges) == [["as published", "a", "b"], ["score", "50.0 %", "-"]]
    assert published_figures({"a": {"figures": {}}}) == [["as published", "a"]]


def test_details_that_no_judge_has_are_left_out() -> None:
    first = {"calibration": None, "people": {"kappa": 0.25}}
    second: dict[str, Any] = {"people": {"kappa": None}}
    assert details({"a": first, "b": second})[1:] == [["kappa with labels", "0.250", "-"]]
    assert details({"b": second}) == [["details", "b"]]


def test_weights_stand_beside_the_accuracy_of_each_reward_alone() -> None:
    numbers = {
        "weights": {"length": 0.75},
        "single": {"length": {"value": 0.5}},
        "accuracy": {"value": 0.6},
        "equal": {"value": None},
    }
    rows = best_weights(numbers)
    assert rows[1] == ["length", "0.750", "50.0 %"]
    assert (rows[2][2], rows[3][2]) == ("60.0 %", "-")

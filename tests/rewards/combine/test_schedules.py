"""Weights over the steps."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.errors import ConfigError
from rmrl.rewards.combine.schedules import schedules_of


def test_straight_lines_between_points_and_constant_outside():
    schedule = schedules_of({"a": [[10, 0.0], [20, 1.0], [40, 0.5]]}, ["a", "b"])["a"]
    # 13: 0.3; 30: halfway from 1 to 0.5
    assert [schedule.at(step) for step in (0, 10, 13, 20, 30, 40, 999)] == pytest.approx(
        [0.0, 0.0, 0.3, 1.0, 0.75, 0.5, 0.5]
    )
    assert str(schedule) == "0 @ 10 -> 1 @ 20 -> 0.5 @ 40"


def test_one_point_is_a_constant_and_weights_may_be_negative():
    assert schedules_of({"a": [[5, -2]]}, ["a"])["a"].at(0) == -2.0
    assert schedules_of({}, ["a"]) == {}


@pytest.mark.parametrize(
    "points",
    [[], 3, "x", [3], [[1]], [[0, "x"]], [[-1, 1]], [[0, True]], [[0, float("nan")]], {"0": 1}],
)
def test_what_is_no_schedule(points: Any):
    with pytest.raises(
        ConfigError, match=r"reward.weight_schedules.a=.*: give points \[step, weight\]"
    ):
        schedules_of({"a": points}, ["a"])


def test_all_problems_at_once():
    with pytest.raises(ConfigError) as error:
        schedules_of({"hlepful": [[0, 1]], "a": [[3, 1], [2, 1]]}, ["a", "helpful"])
    assert error.value.problems == [
        (
            "reward.weight_schedules.hlepful: no reward of that name; did you mean 'helpful'?"
            " known: a, helpful"
        ),
        "reward.weight_schedules.a: steps must rise from point to point, seen 3, 2",
    ]

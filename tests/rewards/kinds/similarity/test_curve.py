"""Problems of a curve as it was typed; its values are tested with the kind `similarity`."""

from __future__ import annotations

import pytest

from rmrl.config.numbers import is_pair
from rmrl.rewards.kinds.similarity.curve import curve_problems


def test_no_curve_and_a_rising_one_have_no_problem():
    assert curve_problems([], "exponential") == []
    assert curve_problems([[0.0, 0.1], [1.0, 1.0]], "exponential") == []
    assert curve_problems([[0.0, -1.0], [1.0, 1.0]], "linear") == []
    # A cosine may lie below the score before it.
    assert curve_problems([[0.1, 0.5], [0.3, 1.0]], "linear") == []


def test_cosines_that_do_not_rise_and_scores_below_zero_are_two_problems():
    falling, negative = curve_problems([[0.5, 1.0], [0.5, -2.0]], "exponential")
    assert falling == ": cosines must rise from point to point, seen 0.5, 0.5"
    assert negative.startswith(" has the score -2, and an exponential")


@pytest.mark.parametrize("curve", [[[0.5, 1.0]], [[0.5], [0.6, 1.0]]])
def test_less_than_two_points_is_no_curve(curve: list[list[float]]):
    (problem,) = curve_problems(curve, "linear")
    assert "give at least two points" in problem


def test_points_are_pairs_of_finite_numbers():
    assert is_pair([0.5, 1])
    assert is_pair((0, -1.0))
    for point in ([0.5], [0.5, "a"], [0.5, True], [0.5, float("nan")], "ab"):
        assert not is_pair(point)

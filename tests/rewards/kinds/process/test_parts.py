"""The steps of a response as a process reward model reads them, and the score of a step."""

from __future__ import annotations

import math

import pytest

from rmrl.rewards.dropins.verdict import RowError
from rmrl.rewards.kinds.process.parts import (
    Parts,
    cut_parts,
    returned_parts,
    step_score,
    tagged_pieces,
)
from rmrl.rewards.kinds.shared.row_errors import Origin

ORIGIN = Origin(function=len, what="rm_preprocess of reward 'p'", file="p.py")


def test_a_response_is_cut_behind_its_separators():
    assert cut_parts("One.\n\nTwo.", "\n\n", None) == Parts(("One.\n\n", "Two."), (6, 10))


def test_invisible_characters_leave_the_texts_and_count_in_the_ends():
    parts = cut_parts("a\u200bb\n\nc", "\n\n", None)
    assert parts == Parts(("ab\n\n", "c"), (5, 6))


def test_some_of_the_steps_keep_their_ends():
    parts = Parts(("a", "b", "c"), (1, 2, 3), "p")
    assert parts.only([0, 2]) == Parts(("a", "c"), (1, 3), "p", whole=3)
    assert Parts(("a", "b"), None).only([1]) == Parts(("b",), None, whole=2)


def test_returned_steps_are_located_in_the_response():
    assert returned_parts(["One.", "Two."], "One.\n\nTwo.", None, origin=ORIGIN) == Parts(
        ("One.", "Two."), (4, 10)
    )
    assert returned_parts(("p", ["New."]), "One.", None, origin=ORIGIN) == Parts(
        ("New.",), None, "p"
    )


@pytest.mark.parametrize("returned", ["One.", [], [1], (1, ["One."]), None])
def test_a_value_that_is_no_list_of_steps_costs_its_row(returned: object):
    error = returned_parts(returned, "One.", None, origin=ORIGIN)
    assert isinstance(error, RowError)
    assert "give a list of its steps" in error.detail


def test_the_error_of_a_row_stays_its_error():
    error = RowError("rm_preprocess", "raised")
    assert returned_parts(error, "One.", None, origin=ORIGIN) is error


def test_step_scores():
    assert step_score([0.5], 0, "none") == 0.5
    assert step_score([0.0], 0, "auto") == 0.5
    assert step_score([0.0, math.log(3)], 1, "auto") == pytest.approx(0.75)  # 3 / (1 + 3)
    assert step_score([9.0, math.log(3)], 1, "sigmoid") == pytest.approx(0.75)
    assert step_score([1000.0], 0, "sigmoid") == 1.0
    assert step_score([-1000.0], 0, "sigmoid") == 0.0
    assert math.isnan(step_score([math.inf, 0.0], 1, "none"))


def test_a_tag_stands_behind_each_step_and_a_forged_one_is_broken():
    pieces = tagged_pieces(["One.\n\n", " Two<s> \n\n"], "<s>", joint="\n", separator="\n\n")
    assert pieces == ["One.<s>", "\n", "Two< s><s>", ""]
    assert tagged_pieces([], "<s>") == []

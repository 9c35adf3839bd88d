"""The last \\boxed{...} of a response."""

from __future__ import annotations

import pytest

from rmrl.rewards.answers.format import last_boxed, reference_text


def test_one_text_is_a_reference_and_several_are_none():
    assert reference_text(4) == "4"
    with pytest.raises(ValueError, match=r"is \['4', 'four'\]; this rule compares with one text"):
        reference_text(["4", "four"])


def test_boxed():
    assert last_boxed("\\boxed{1} and \\boxed{\\frac{1}{2}}.") == "\\frac{1}{2}"
    assert last_boxed("\\boxed{\\frac{1}{2}") is None
    assert last_boxed("\\boxed{1") is None
    assert last_boxed("\\boxed{}") == ""
    assert last_boxed("1}") is None

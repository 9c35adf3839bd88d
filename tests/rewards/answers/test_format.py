"""The last \\boxed{...} of a response."""

from __future__ import annotations

from rmrl.rewards.answers.format import last_boxed


def test_boxed():
    assert last_boxed("\\boxed{1} and \\boxed{\\frac{1}{2}}.") == "\\frac{1}{2}"
    assert last_boxed("\\boxed{\\frac{1}{2}") is None
    assert last_boxed("\\boxed{1") is None
    assert last_boxed("\\boxed{}") == ""
    assert last_boxed("1}") is None

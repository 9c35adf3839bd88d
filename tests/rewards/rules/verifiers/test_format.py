"""Layout rules."""

from __future__ import annotations

import pytest

from rmrl.rewards.rules.verifiers.format import has_boxed, in_tags, last_boxed


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("<think>a</think><answer>4</answer>", 1.0),
        (" <think>a\n</think>\n<answer>4</answer>\n", 1.0),
        ("well <think>a</think><answer>4</answer>", 0.0),
        ("<think>a</think> so <answer>4</answer>", 0.0),
        ("<think>a</think><answer>4</answer> bye", 0.0),
        ("<answer>4</answer><think>a</think>", 0.0),
        ("<think>a<answer>4</answer></think>", 0.0),
        ("<think>a</think><think>b</think><answer>4</answer>", 0.0),
        ("<think>a<answer>4</answer>", 0.0),
        ("", 0.0),
    ],
)
def test_in_tags(response, expected):
    assert in_tags(response) == expected


def test_other_tags():
    assert in_tags("<a>1</a>", ("a",)) == 1.0
    assert in_tags("<a>1</a>", ("b",)) == 0.0


def test_boxed():
    assert last_boxed("\\boxed{1} and \\boxed{\\frac{1}{2}}.") == "\\frac{1}{2}"
    assert last_boxed("\\boxed{\\frac{1}{2}") is None
    assert last_boxed("1}") is None
    assert [has_boxed(t) for t in ("\\boxed{1}", "\\boxed{ }", "\\boxed{1", "1")] == [
        1.0,
        0.0,
        0.0,
        0.0,
    ]

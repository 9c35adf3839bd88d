"""Thinking once and first, then something."""

from __future__ import annotations

import pytest

from reward_functions.think_format import compute_score

PLAIN = [
    ("<think>a\nb</think>c", 1),
    (" \n<think>a</think>\nc\n", 1),
    ("<think></think>c", 0),
    ("<think>a</think> \n", 0),
    ("<think>a", 0),
    ("c", 0),
    ("so: <think>a</think>c", 0),
    ("<think>a<think>b</think>c", 0),
    ("<think>a</think>b</think>c", 0),
    ("<think>a</think>b<think>c", 0),
]


@pytest.mark.parametrize(("response", "score"), PLAIN)
def test_thinking_first(response: str, score: int) -> None:
    assert compute_score("", response, None) == score


@pytest.mark.parametrize(
    ("response", "score"), [("a</think>c", 1), *PLAIN[:2], ("a", 0), ("a</think>", 0)]
)
def test_thinking_that_the_template_opened(response: str, score: int) -> None:
    assert compute_score("", response, None, opened=True) == score


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("<think>a</think>\n<answer>5</answer>\n", 1),
        ("<think>a</think>so <answer>5</answer>", 0),
        ("<think>a</think><answer>5</answer>.", 0),
        ("<think>a</think><answer></answer>", 0),
        ("<think>a</think><answer>5</answer><answer>6</answer>", 0),
        ("<answer>5</answer>", 0),
    ],
)
def test_an_answer_and_nothing_else(response: str, score: int) -> None:
    assert compute_score("", response, None, answer=True) == score

"""Excuses are told apart from judgements."""

from __future__ import annotations

import pytest

from rmrl.rewards.kinds.judge.refusal import is_refusal


@pytest.mark.parametrize(
    "text",
    [
        "I can't help with that.",
        "I\u2019m sorry, but I can\u2019t assist with this request.",
        "I'm sorry, but I cannot.",
        "Sorry, I can't do that.",
        "I am unable to evaluate this response.",
        "As an AI language model, I cannot provide a rating here.",
        "I cannot ethically judge\nthis conversation.",
        "I must respectfully decline to score it.",
        "This is against my guidelines.",
        "I won't engage with this content.",
        "We're sorry, we are not able to process this.",
    ],
)
def test_refusals(text: str):
    assert is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The response refuses to answer, which is right.",
        "The response says that it can't help with that. A good refusal.",
        "I cannot tell whether the answer is right.",
        "I can't see an error in it.",
        "I think the response is sorry but it cannot be rated highly.",
        "maybe",
        "The assistant could not provide a proof.",
        "Step 1: check the sum. " * 20 + "I can't help with that.",
    ],
)
def test_judgements(text: str):
    assert not is_refusal(text)

"""examples/agents: the reward per turn. The environment itself is played by the nightly tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.rewards.dropins.dropin import load_module

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "agents"


@pytest.mark.parametrize(
    ("answer", "text", "score"),
    [
        ("n=", "4", 1.0),  # the first may be any from 0 to 9
        ("n=", "12", 0.0),
        ("n=", "a number", 0.0),
        ("2+3=", "5", 1.0),
        ("2+3=", "6", 0.0),
        ("7-2=", "5", 1.0),
        ("-3+4=", "1", 1.0),
        ("?", "1", 1.0),
    ],
)
def test_a_guess_follows_from_the_tools_answer(answer: str, text: str, score: float) -> None:
    module = load_module(EXAMPLE / "reward_functions" / "follows.py")
    turns = [{"role": "user", "content": answer}]
    assert module.compute_score([turns], [text]) == [score]
    assert module.compute_score([turns], [[{"role": "assistant", "content": text}]]) == [score]

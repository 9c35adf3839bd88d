"""The shipped judge that copies an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.rewards.dropins.dropin import DropIn, load_dropin

FILE = Path(__file__).parents[2] / "reward_functions" / "answer_judge.py"


@pytest.fixture
def judge() -> DropIn:
    return load_dropin(FILE, "answer_judge")


def test_it_is_a_generative_reward_that_samples_nothing(judge: DropIn):
    assert judge.kind == "model"
    assert judge.spec["kind"] == "generative"
    assert judge.spec["sampling"]["temperature"] == 0.0


def test_it_asks_for_the_end_of_each_reply(judge: DropIn):
    assert judge.preprocess is not None
    short, long = judge.preprocess(["p", "p"], ["is {reply} 7?", "x" * 5000 + " so 8"], None)
    assert short[-1]["content"].startswith("Reply: is {reply} 7?\n\nWhat is the final answer")
    assert long[-1]["content"].startswith("Reply: xxx")
    assert "so 8\n\nWhat is" in long[-1]["content"]
    assert len(long[-1]["content"]) < 1500
    assert [m["role"] for m in short[:3]] == ["system", "user", "assistant"]


@pytest.mark.parametrize(
    ("said", "truth", "score"),
    [("42", "42", 1.0), (" 42.\n", "42", 1.0), ("$1,250.50", "1250.5", 1.0), ("-15", "-15", 1.0), ("15", "-15", 0.0), ("none", "3", 0.0),
     ("None.", "3", 0.0), ("0042", "42", 1.0), ("7", "seven", 0.0), ("i", "82", 0.0), ("Paris", "Paris", 1.0), ("1,000", "$1,000", 1.0)],
)  # fmt: skip
def test_it_compares_numbers(judge: DropIn, said: str, truth: str, score: float):
    assert judge.postprocess is not None
    (verdict,) = judge.postprocess([said], [truth])
    assert verdict["score"] == score


@pytest.mark.parametrize(("said", "truth"), [("I cannot tell", "3"), ("", "3"), ("3", None)])
def test_it_gives_no_verdict_where_there_is_none(judge: DropIn, said: str, truth: str | None):
    assert judge.postprocess is not None
    assert judge.postprocess([said], [truth]) == [None]

"""The judge that compares a promise with what is declared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmrl.rewards.dropins.dropin import load_dropin
from rmrl.rewards.kinds.shared.rendering import exhibits, preprocess
from rmrl.types import ScoreItem

JUDGE = load_dropin(
    Path(__file__).parents[2] / "reward_functions" / "consistency_reward.py", "consistency_reward"
)


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ('{"consistent": 1}', 1.0),
        ('{"consistent": 0}', 0.0),
        ("{'consistent':'1'}", 1.0),
        ('先看 {"consistent": 1}，但方案不符，所以 {"consistent": 0}。', 0.0),  # noqa: RUF001
        ('{"consistent": 10}', None),
        ('{"consistent": 0.5}', None),
        ('{"consistent": true}', None),
        ("1", None),
        ("", None),
    ],
)
def test_the_verdict(said: str, score: float | None):
    assert JUDGE.postprocess is not None
    assert JUDGE.postprocess([said]) == [score]


def test_structured_output_admits_verdicts_only():
    regex = JUDGE.spec["sampling"]["regex"]
    assert re.fullmatch(regex, '{"consistent": 1}')
    assert not re.fullmatch(regex, '{"consistent": 2}')


def test_the_judge_reads_the_case_and_the_fenced_reply():
    items = [ScoreItem(prompt_id="a:0", messages=[], response="回复", rm_prompt="案情")]
    shown = exhibits(items, None, fenced=True)
    ((system, user),) = preprocess(JUDGE, items, None, displayed=shown)
    assert "ResponseSolution" in system["content"]
    assert user["content"].startswith(
        f"{shown[0].fence.note()}\n\n案情\n\n【客服的回复】\n{shown[0].fence.wrap('回复')}\n"
    )

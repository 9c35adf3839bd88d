"""The judge of courier-support replies."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.dropins.dropin import load_dropin
from rmrl.rewards.kinds.shared.rendering import exhibits, preprocess
from rmrl.types import ScoreItem

JUDGE = load_dropin(
    Path(__file__).parents[2] / "reward_functions" / "rider_reward.py", "rider_reward"
)
NAMES = ("accurate", "harmless", "solves", "follows_rules", "empathetic", "polite", "concise")


def verdict(text: str) -> Any:
    assert JUDGE.postprocess is not None
    (found,) = JUDGE.postprocess([text])
    return found


def said(*values: int) -> str:
    return json.dumps(dict(zip(NAMES, values, strict=True)))


@pytest.mark.parametrize(
    ("values", "score"),
    [
        ((1, 1, 1, 1, 1, 1, 1), 1.0),
        ((1, 1, 1, 0, 1, 0, 1), 0.6),  # 3 of the 5 that do not decide by themselves
        ((1, 1, 0, 0, 0, 0, 0), 0.0),
        ((0, 1, 1, 1, 1, 1, 1), 0.0),  # untruthful
        ((1, 0, 1, 1, 1, 1, 1), -1.0),  # harmful
        ((0, 0, 1, 1, 1, 1, 1), -1.0),  # both: the worse counts
    ],
)
def test_the_score(values: tuple[int, ...], score: float):
    assert verdict(said(*values)) == {
        "score": pytest.approx(score),
        **dict(zip(NAMES, values, strict=True)),
    }


def test_the_last_whole_verdict_counts():
    argued = f'先写一版 {said(1, 1, 1, 1, 1, 1, 1)}，再看规则……\n```json\n{said(1, 1, 0, 1, 1, 1, 1)}\n``` 以及 {{"accurate": 0}}'  # noqa: RUF001
    assert verdict(argued)["score"] == pytest.approx(0.8)


@pytest.mark.parametrize("one", ['"1"', "1"])
def test_numbers_in_quotes_count(one: str):
    assert verdict(said(1, 1, 1, 1, 1, 1, 1).replace("1", one))["score"] == 1.0


@pytest.mark.parametrize(
    "text",
    ["", "1", "{}", "[1]", "{1}", said(1, 1, 1, 1, 1, 1, 2), said(1, 1, 1, 1, 1, 1, 1).replace("1", "0.5"), said(1, 1, 1, 1, 1, 1, 1)[:-1],
     said(1, 1, 1, 1, 1, 1, 1).replace("1", "null"), said(1, 1, 1, 1, 1, 1, 1).replace("concise", "short")],
)  # fmt: skip
def test_what_cannot_be_read_is_no_verdict(text: str):
    assert verdict(text) is None


def test_structured_output_admits_verdicts_only():
    regex = JUDGE.spec["sampling"]["regex"]
    assert JUDGE.spec["kind"] == "generative"
    assert re.fullmatch(regex, said(1, 0, 1, 0, 1, 0, 1))
    assert not re.fullmatch(regex, said(1, 0, 1, 0, 1, 0, 2))
    shortest = regex.replace("[01]", "0").replace("\\", "")
    assert set(verdict(shortest)) == {"score", *NAMES}
    assert (
        len(shortest) < JUDGE.spec["sampling"]["max_tokens"]
    )  # even where every character is a token


def item(response: str, rm_prompt: Any) -> ScoreItem:
    return ScoreItem(prompt_id="a:0", messages=[], response=response, rm_prompt=rm_prompt)


def test_the_judge_reads_the_case_and_the_fenced_reply():
    items = [
        item("{a} {reply}", "案情 {case}"),
        item("b", [{"role": "user", "content": "甲"}, {"role": "user", "content": "乙"}]),
    ]
    shown = exhibits(items, None, fenced=True)
    first, second = preprocess(JUDGE, items, None, displayed=shown)
    assert [turn["role"] for turn in first] == ["system", "user"]
    assert all(f"{name}：" in first[0]["content"] for name in NAMES)  # noqa: RUF001
    assert first[1]["content"].startswith(
        f"{shown[0].fence.note()}\n\n案情"
        f" {{case}}\n\n【客服的回复】\n{shown[0].fence.wrap('{a} {reply}')}\n"
    )
    assert "\n\n甲\n\n乙\n\n" in second[1]["content"]

"""Tool results lose their middle before anything else is cut."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.kinds.shared.tool_results import with_shorter_results
from rmrl.rewards.kinds.shared.truncation import MARK
from rmrl.types import Sampling
from tests.rewards.kinds.scripted import context, spec
from tests.rewards.parts import checkpoint, items

RESULT = "abcdefghijklmnopqrstuvwxyz" * 40
TEXT = f"I look.\n[tool f]\n{RESULT}\n[assistant]\nSo it is seven."


def test_the_longest_result_loses_its_middle(tokenizer: Any):
    text = "say aaaaaaaaaabbbbbbbbbb and cccc."
    (item,) = items(text)
    item = dataclasses.replace(item, tool_results=((4, 24), (29, 33)))
    # A token is a character. 24 - 12 - 3 for " ~ " stay: 4 of the short result, which is whole, and
    # 5 of the long one, 2 from its beginning and 3 from its end.
    shorter = with_shorter_results(item, 12, tokenizer=tokenizer, mark="~")
    assert shorter.response == "say aa ~ bbb and cccc."
    assert [shorter.response[a:b] for a, b in shorter.tool_results] == ["aa ~ bbb", "cccc"]


@pytest.mark.parametrize("how", ["truncate_left", "truncate_right"])
def test_a_judge_reads_all_but_the_middle_of_the_result(tokenizer: Any, tmp_path: Path, how: str):
    folder = checkpoint(tmp_path / "model")
    (folder / "config.json").write_text('{"max_position_embeddings": 100000}', encoding="utf-8")
    whole = spec(
        "generative",
        overlong=how,
        options=GenerativeReward.Options(rubric="short"),
        sampling=Sampling(max_tokens=100, temperature=0.0),
    )
    engine = dataclasses.replace(whole.engines["main"], path=str(folder), max_model_len=1100)
    reward = dataclasses.replace(whole, engines={"main": engine})
    (item,) = items(TEXT, prompt="why")
    start = TEXT.index(RESULT)
    item = dataclasses.replace(item, tool_results=((start, start + len(RESULT)),))
    (read,) = GenerativeReward.from_spec(reward, context(tokenizer)).render([item])
    assert len(read.token_ids) <= 1000
    assert read.left_out > 0
    assert read.text.count(MARK) == 1
    assert f"I look.\n[tool f]\n{RESULT[:20]}" in read.text
    assert f"{RESULT[-20:]}\n[assistant]\nSo it is seven." in read.text
    assert "why" in read.text

"""Marks of thinking that never reach the policy's texts."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.rewards.reads.setting import Reads
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.check_reads import reads_problems
from tests.rewards.parts import chat_tokenizer

ANSWER = Reads(part="answer")
PLAN = Reads(part="answer", tags=("<plan>", "</plan>"))


@pytest.mark.parametrize(
    ("tokens", "special", "reads", "said"),
    [
        (["[THINK]", "[/THINK]"], True, ANSWER, "has [THINK] and [/THINK] as special tokens"),
        (["[THINK]", "[/THINK]"], True, Reads(), ""),
        (["[THINK]", "[/THINK]"], True, Reads(part="transcript"), ""),
        (["[THINK]", "[/THINK]"], True, PLAN, ""),
        (["<think>", "</think>"], False, ANSWER, ""),
        (["<plan>"], True, ANSWER, ""),
        (["<plan>"], True, PLAN, "has <plan> as special tokens"),
        # gpt-oss leaves the names of its channels
        (["<|channel|>", "<|message|>"], True, ANSWER, ""),
        (["<|channel>", "<channel|>"], True, ANSWER, "has <|channel> and <channel|> as"),
    ],
)
def test_special_tokens(tokens: list[str], special: bool, reads: Reads, said: str, tmp_path: Any):
    tokenizer = chat_tokenizer(tmp_path)
    tokenizer.add_tokens(tokens, special_tokens=special)
    ids = tokenizer.convert_tokens_to_ids(tokens)
    spec = RewardSpec(name="mine", kind="rule", weight=1.0, reads=reads)
    problems = reads_problems([spec], tokenizer)
    assert len(problems) == bool(said)
    assert said in "".join(problems)
    # the decoding of the rollout engines: special tokens leave no text
    text = tokenizer.decode(ids, skip_special_tokens=True)
    assert (text == "") is special

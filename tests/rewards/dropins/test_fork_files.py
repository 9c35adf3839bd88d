"""The reward files of VeRL-with-RMs, unchanged, on replies as policies write them: whole, without
their last brace, cut, garbage."""

# ruff: noqa: RUF001
# Chinese text has the punctuation of Chinese.

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.compat import translate
from rmrl.config.schema import Config
from rmrl.rewards.dropins.dropin import load_dropin, load_module
from rmrl.rewards.dropins.signatures import rule_form
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.session.items import score_item
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling
from tests.rewards.kinds.scripted import context
from tests.rewards.parts import ENGINE, rows, scored

FORK = Path(__file__).resolve().parents[4] / "shared" / "data" / "fork"
FILES = FORK / "reward_function"
pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason=f"{FORK} is not here")

REPLY = json.dumps(
    {
        "Thought": "先核实商家是否返餐",
        "Response": "客服:我会联系商家核实您是否返餐。",
        "ResponseSolution": "外呼商家-骑手是否返餐",
        "DialogueAgreeSolution": "同意",
        "RelevantConstraintRuleNumber": [1],
        "RelevantKnowledgeNumber": [2],
    },
    ensure_ascii=False,
)
REPLIES = {
    "whole": REPLY,
    "in a block": f"```json\n{REPLY}\n```",
    "without its brace": REPLY.removesuffix("}"),
    "cut": REPLY[: len(REPLY) // 2],
    "garbage": "您好，请问有什么可以帮您？",
    "empty": "",
    "other keys": '{"a": 1}',
}
JUDGED = {
    "rider_reward": ["whole", "in a block", "without its brace"],
    "consistency_reward": ["whole", "in a block", "without its brace"],
}
"""What each file makes a prompt of when it is called by itself."""


def older_spec(name: str) -> RewardSpec:
    """The reward as older names make it, on the fake engine."""
    config = Config(
        reward_model={
            "enable": True,
            "reward_function": [name],
            "model": {"path": ["/m"]},
            "combine_reward": False,
        }
    )
    translate(config)
    entries = config.reward.specs[name]
    return RewardSpec(
        name=name,
        kind="generative",
        weight=1.0,
        model_index=0,
        sampling=Sampling(max_tokens=16, temperature=0.0),
        options=GenerativeReward.Options(fence=entries["fence"]),
        dropin=load_dropin(FILES / f"{name}.py", name),
        engines={"main": ENGINE},
    )


@pytest.mark.parametrize("name", sorted(JUDGED))
async def test_malformed_replies_cost_their_rows(name: str, tokenizer: Any):
    batch = await scored(
        [older_spec(name)], rows(*REPLIES.values(), prompt="对话：{response}"), tokenizer
    )
    results = dict(zip(REPLIES, batch.scores.results[0], strict=True))
    assert [label for label, result in results.items() if result.status != "user_error"] == JUDGED[
        name
    ]
    for label, result in results.items():
        if result.status == "user_error":
            assert f"{(FILES / name).resolve()}.py:" in result.detail
            assert f"on the response {REPLIES[label][:80]!r}"[:-1] in result.detail


@pytest.mark.parametrize("name", sorted(JUDGED))
def test_prompts_are_those_the_file_makes_by_itself(name: str, tokenizer: Any):
    """Neither a fence nor a note stands in what the judge reads, and the missing brace is mended as
    the file mends it."""
    module = load_module(FILES / f"{name}.py")
    labels = JUDGED[name]
    expected = module.rm_preprocess(
        ["对话：{response}"] * len(labels), [REPLIES[label] for label in labels], tokenizer
    )
    spec = older_spec(name)
    items = [
        score_item(row, spec)
        for row in rows(*(REPLIES[label] for label in labels), prompt="对话：{response}")
    ]
    rendered = GenerativeReward.from_spec(spec, context(tokenizer)).render(items)
    assert [read.text for read in rendered] == expected
    assert len(set(expected)) == 1  # all three hold the same reply


def test_a_fence_would_break_what_the_file_mends(tokenizer: Any):
    """Why older names do without: the brace would be put behind the end of the fence."""
    module = load_module(FILES / "rider_reward.py")
    broken = REPLIES["without its brace"]
    assert module.rm_preprocess(["{response}"], [broken], tokenizer)
    with pytest.raises(json.JSONDecodeError):
        module.rm_preprocess(["{response}"], [f"[begin 0123]\n{broken}\n[end 0123]"], tokenizer)


def test_the_rule_scores_as_it_did():
    form = rule_form(load_module(FORK / "rule_rider_agent_reason_v2.py").compute_score, "rule")
    target = json.loads(REPLY)
    offered = {"data_source": "", "extra_info": {}, "ground_truth": REPLY}
    other = json.dumps({**target, "ResponseSolution": "无"}, ensure_ascii=False)
    long = json.dumps({**target, "Thought": "x" * 1300}, ensure_ascii=False)
    rude = json.dumps({**target, "Response": "不"}, ensure_ascii=False)
    scores = [
        form.call({**offered, "solution_str": text})
        for text in (REPLY, other, long, rude, REPLIES["cut"])
    ]
    assert scores == pytest.approx([1.0, 0.1, 0.1, 0.0, 0.0])


def test_every_file_loads():
    kinds = Counter(
        load_dropin(FILES / f"{name}.py", name).kind
        for name in ("rider_reward", "consistency_reward", "test_reward")
    )
    assert kinds == {"model": 3}

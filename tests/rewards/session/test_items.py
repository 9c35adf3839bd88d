"""What a reward reads of a row."""

from __future__ import annotations

from rmrl.rewards.session.items import ResponseRow, score_item
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Prompt, ScoreItem


def test_a_reward_reads_every_field_of_its_row():
    prompt = Prompt(
        id="train.parquet:3",
        messages=[{"role": "user", "content": "What is 2 + 2?"}],
        token_ids=(5, 6),
        rm_prompts={"": "all", "exact": "exactly"},
        ground_truth="4",
        data_source="sums",
        extra_info={"level": 1},
        plain_text=True,
    )
    row = ResponseRow(
        prompt=prompt, text="4", finish_reason="length", tokens=2, group=7, token_ids=(8, 9)
    )
    assert score_item(row, RewardSpec(name="exact", kind="rule", weight=1.0)) == ScoreItem(
        prompt_id="train.parquet:3",
        messages=prompt.messages,
        response="4",
        rm_prompt="exactly",
        ground_truth="4",
        data_source="sums",
        extra_info={"level": 1},
        finish_reason="length",
        response_tokens=2,
        group=7,
        plain_text=True,
        token_ids=(8, 9),
        prompt_token_ids=(5, 6),
    )

"""What a reward is told of one response."""

from __future__ import annotations

from dataclasses import dataclass

from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Messages, Prompt, ScoreItem


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRow:
    """One response to be scored, whoever sampled it."""

    prompt: Prompt
    text: str
    finish_reason: str = "stop"
    tokens: int = 0
    """Response tokens; 0 where nobody counted."""
    group: int = 0
    """Responses of one prompt share it."""
    token_ids: tuple[int, ...] = ()
    """Of the response; () where only its text is known."""


def score_item(row: ResponseRow, spec: RewardSpec) -> ScoreItem:
    """What the reward `spec` is told: its own rm_prompt and everything else of the row."""
    return ScoreItem(
        prompt_id=row.prompt.id,
        messages=row.prompt.messages,
        response=row.text,
        rm_prompt=rm_prompt(row.prompt, spec),
        ground_truth=row.prompt.ground_truth,
        data_source=row.prompt.data_source,
        extra_info=row.prompt.extra_info,
        finish_reason=row.finish_reason,
        response_tokens=row.tokens,
        group=row.group,
        plain_text=row.prompt.plain_text,
        token_ids=row.token_ids,
    )


def rm_prompt(prompt: Prompt, spec: RewardSpec) -> str | Messages:
    """rm_prompt_<the spec's own>, else rm_prompt_<name>, else rm_prompt_<i>, else rm_prompt, else
    the last user turn.

    Empty ones do not count.
    """
    own = [] if spec.rm_prompt is None else [spec.rm_prompt]
    for key in (*own, spec.name, str(spec.model_index), ""):
        if prompt.rm_prompts.get(key):
            return prompt.rm_prompts[key]
    users = [m["content"] for m in prompt.messages if m["role"] == "user"]
    if users:
        return users[-1]
    return prompt.messages[-1]["content"]

"""A reward's input for one response."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmrl.data.surrogates import replaced
from rmrl.rewards.specs.spec import WHOLE_PROMPT, RewardSpec
from rmrl.types import Messages, Prompt, ScoreItem

OTHER_ANSWER = "I do not know."
"""A response for trials where a row has no reference answer, and the second response for rewards
that compare."""
_TEXTS_OF_PROMPT = ("messages", "rm_prompts", "ground_truth", "extra_info")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRow:
    """One response to score, from whichever engine or file.

    Rewards read U+FFFD for a lone surrogate, in the response and in everything else the row has.
    Tokenizers refuse half a character, and no policy writes one.
    """

    prompt: Prompt
    text: str
    finish_reason: str = "stop"
    tokens: int = 0
    """Number of response tokens. 0 where the number is unknown."""
    group: int = 0
    """Group number, equal for all responses to one prompt."""
    group_key: bytes = b""
    """Equal for a group's rows in every batch and file. b"" where `prompt.id` identifies the
    prompt."""
    token_ids: Sequence[int] | np.ndarray = ()
    """Ids of the response tokens. () where only the text is known."""
    step: int | None = None
    """Number of the update that the response trains. None where it trains no update."""

    @property
    def response_tokens(self) -> int:
        """Return `tokens`, by the name that a component's input has for it."""
        return self.tokens

    @property
    def data_source(self) -> str:
        """Return the prompt's data source."""
        return self.prompt.data_source

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", replaced(self.text))
        changed: dict[str, Any] = {}
        for name in _TEXTS_OF_PROMPT:
            value = getattr(self.prompt, name)
            readable = replaced(value)
            if readable is not value:
                changed[name] = readable
        talk = self.prompt.conversation
        if talk is not None:
            messages = replaced(talk.messages)
            if messages is not talk.messages:
                changed["conversation"] = dataclasses.replace(talk, messages=messages)
        if changed:
            object.__setattr__(self, "prompt", dataclasses.replace(self.prompt, **changed))


def made_up_response(prompt: Prompt, text: str, group: int) -> ResponseRow:
    """Return a response to try rewards on before training. It has tokens, as every response in
    training has: ids that each vocabulary has, one for four bytes."""
    ids = tuple(replaced(text).encode()[::4])
    return ResponseRow(prompt=prompt, text=text, group=group, tokens=len(ids), token_ids=ids)


def score_item(row: ResponseRow, spec: RewardSpec) -> ScoreItem:
    """Build the input for the reward `spec`: its own rm_prompt and all other fields from the
    row."""
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
        step=row.step,
        opens_thinking=row.prompt.opens_thinking,
        prompt_token_ids=row.prompt.token_ids,
        conversation=row.prompt.conversation,
    )


def rm_prompt(prompt: Prompt, spec: RewardSpec) -> str | Messages:
    """Return the first rm_prompt that is not empty: rm_prompt_<the spec's own>, rm_prompt_<name>,
    rm_prompt_<i>, rm_prompt, the last user turn.

    Where the spec's own is WHOLE_PROMPT, all turns follow rm_prompt_<name>.
    """
    keys = [spec.name, str(spec.model_index), ""]
    whole = spec.rm_prompt == WHOLE_PROMPT
    if whole:
        keys = [WHOLE_PROMPT, spec.name]
    elif spec.rm_prompt is not None:
        keys.insert(0, spec.rm_prompt)
    for key in keys:
        if prompt.rm_prompts.get(key):
            return prompt.rm_prompts[key]
    if whole and [message["role"] for message in prompt.messages] != ["user"]:
        return prompt.messages
    for message in reversed(prompt.messages):
        if message["role"] == "user":
            return message["content"]
    return prompt.messages[-1]["content"]

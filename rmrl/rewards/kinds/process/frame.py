"""The text that a chat template puts around a conversation's last answer.

The template renders a stand-in for the answer, and the answer itself takes its place afterwards.
Its steps can then be located among the tokens, and nothing in it is read as template language.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.errors import RewardFunctionError
from rmrl.rewards.kinds.shared.rendering import tokenize
from rmrl.types import Message

_STAND_IN = "ANSWER7f3a"


@dataclass(frozen=True, slots=True)
class Frame:
    """The text before and after an answer."""

    before: str
    after: str
    strips: bool
    """Whether the template strips white space off the answer's ends."""
    special: bool
    """Whether the tokenizer has to add its begin and end marks, as `before` has none."""


def frame_of(turns: Sequence[Message], tokenizer: Any, *, where: str) -> Frame:
    """The frame of the answer that follows `turns`.

    Raises RewardFunctionError for a template that does not render the answer exactly once.
    """
    stand_in = _STAND_IN
    while any(stand_in in turn["content"] for turn in turns):
        stand_in += "x"
    messages = [*turns, {"role": "assistant", "content": f" {stand_in} "}]
    text = tokenize(messages, tokenizer, generation_prompt=False, where=where).text
    if text.count(stand_in) != 1:
        raise RewardFunctionError(
            f"{where}: the chat template of {tokenizer.name_or_path} shows the answer"
            f" {text.count(stand_in)} times instead of once; give the tokenizer the template that"
            " the process reward model was trained with"
        )
    strips = f" {stand_in} " not in text
    before, after = text.split(stand_in if strips else f" {stand_in} ")
    return Frame(before, after, strips, special=False)


def plain_frame(turns: Sequence[Message], tokenizer: Any) -> Frame:
    """The frame without a chat template: the turns' texts and the answer, a line each."""
    begin = tokenizer.bos_token or ""
    before = "".join(f"{turn['content']}\n" for turn in turns)
    return Frame(before, "", strips=False, special=not (begin and before.startswith(begin)))

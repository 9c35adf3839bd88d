"""Rows for rewards from what trainers hand to their reward functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.errors import DataError

NO_PROMPT = "(the trainer did not pass the prompt)"
"""Prompt of a row whose rewards do not need one."""


def turns_of(prompt: Any) -> Any:
    """Return a prompt as a string, or as messages of a role and a text each."""
    if isinstance(prompt, str):
        return prompt
    turns: list[dict[str, str]] = []
    for message in prompt or ():
        turn = message if isinstance(message, Mapping) else message.model_dump()
        text = _content(turn.get("content"))
        turns.append({"role": str(turn.get("role", "user")), "content": text})
    return turns


def text_of(completion: Any) -> str:
    """Return the text of a completion: a string, or the text of the last assistant turn of a list
    of messages. Raises DataError where there is none."""
    if isinstance(completion, str):
        return completion
    turns: list[Any] = []
    if isinstance(completion, Sequence):
        turns = [turn for turn in completion if isinstance(turn, Mapping)]
    for turn in reversed(turns):
        if turn.get("role", "assistant") == "assistant":
            return _content(turn.get("content"))
    raise DataError(
        f"a completion is {completion!r:.80}; need a string, or a list of messages with an"
        " assistant turn"
    )


def _content(content: Any) -> str:
    """The text of a turn: a string, parts of which those of type text count, or None (a turn that
    only calls a tool)."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts: list[str] = []
    for part in content:
        if isinstance(part, Mapping) and part.get("type") == "text":
            parts.append(str(part.get("text", "")))
    return "".join(parts)

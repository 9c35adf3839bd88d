"""Rows for rewards from what trainers hand to their reward functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.errors import DataError

NO_PROMPT = "(the trainer did not pass the prompt)"
"""Prompt of a row whose rewards do not need one."""

_OF_TURNS = ("name", "tool_calls", "reasoning_content")
"""What a transcript shows of a turn beside its text."""


def turns_of(prompt: Any) -> Any:
    """Return a prompt as a string, or as messages with a role, a text and tool calls each."""
    if isinstance(prompt, str):
        return prompt
    turns: list[dict[str, Any]] = []
    for message in prompt or ():
        turn = message if isinstance(message, Mapping) else message.model_dump()
        text = _content(turn.get("content"))
        further = {name: turn[name] for name in _OF_TURNS if turn.get(name)}
        turns.append({"role": str(turn.get("role", "user")), "content": text, **further})
    return turns


def parted(completion: Any) -> tuple[Any, str]:
    """Split a completion into (the turns before the response, its text): a string, which has None,
    or a list of messages whose last assistant turn is the response. Raises DataError where there is
    none."""
    if isinstance(completion, str):
        return None, completion
    turns: list[Any] = []
    if isinstance(completion, Sequence):
        turns = [turn for turn in completion if isinstance(turn, Mapping)]
    for place in range(len(turns) - 1, -1, -1):
        if turns[place].get("role", "assistant") == "assistant":
            before = [{"role": "assistant", **turn} for turn in turns[:place]]
            return turns_of(before), _content(turns[place].get("content"))
    raise DataError(
        f"a completion is {completion!r:.80}; need a string, or a list of messages with an"
        " assistant turn"
    )


def _content(content: Any) -> str:
    """A turn's text: a string, parts (only those with type text count), or None (a turn that only
    calls a tool)."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts: list[str] = [
        str(part.get("text", ""))
        for part in content
        if isinstance(part, Mapping) and part.get("type") == "text"
    ]
    return "".join(parts)

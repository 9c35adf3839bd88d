"""Answers of several turns: what the policy wrote last is the response, what came before belongs to
the prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def text_of(content: Any) -> str:
    """Return the text of a message's content: a string, or parts that have a `text` (or a
    `refusal`)."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    if isinstance(content, Sequence):
        for part in content:
            if isinstance(part, Mapping):
                texts.append(str(part.get("text") or part.get("refusal") or ""))
    return "".join(texts)


def parted(turns: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Return the turns before the last one of the assistant, and its text. "" without one."""
    for place in range(len(turns) - 1, -1, -1):
        if turns[place].get("role") == "assistant":
            before = [dict(turn) for turn in turns[:place]]
            return before, text_of(turns[place].get("content"))
    return [dict(turn) for turn in turns], ""

"""Dialogues in one text, as Anthropic's HH data have them (arXiv:2204.05862)."""

from __future__ import annotations

import re

from rmrl.types import Message

_TURN = re.compile(r"(?:\A|\n\n)(Human|Assistant):[ \t]?")
_ROLE = {"Human": "user", "Assistant": "assistant"}


def dialogue_turns(text: str) -> tuple[Message, ...]:
    """Return the turns of a text "Human: ... Assistant: ...", the last one maybe without words; ()
    for any other text."""
    start, *parts = _TURN.split(text)
    names = parts[::2]
    if start or names[:2] != ["Human", "Assistant"]:
        return ()
    return tuple(
        {"role": _ROLE[name], "content": said.strip()}
        for name, said in zip(names, parts[1::2], strict=True)
    )

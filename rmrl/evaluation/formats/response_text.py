"""Responses as texts, or as messages that end with the assistant's turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.evaluation.formats.fields import Fields, Turns
from rmrl.types import Message


def response_of(row: Fields, name: str, value: Any, prompt: Turns) -> str:
    """Return a response, whose messages may repeat the prompt. Raises DataError where they hold
    other turns beside the assistant's last one."""
    before, response = split_turns(row, name, value)
    whole = turns_of(prompt)
    asked = tuple(turn for turn in whole if turn["role"] != "system")
    if before not in ((), whole, asked):
        raise row.wrong(name, value, "one turn of the assistant beside a prompt")
    return response


def conversations_of(
    before: Sequence[tuple[Message, ...]], responses: Sequence[str]
) -> tuple[tuple[Message, ...], ...]:
    """Return each response as messages with the turns before it, () where `before` is empty."""
    if not before:
        return ()
    return tuple(
        (*turns, {"role": "assistant", "content": text})
        for turns, text in zip(before, responses, strict=True)
    )


def goes_on(before: tuple[Message, ...], prompt: Turns) -> bool:
    """Whether a conversation's turns are more than the prompt, and begin or end with it: a system
    turn, or a dialogue whose first or last question is the prompt."""
    turns = turns_of(prompt)
    count = len(turns)
    return len(before) > count and turns in (before[:count], before[-count:])


def turns_of(prompt: Turns) -> tuple[Message, ...]:
    """Return a prompt as messages."""
    if isinstance(prompt, str):
        return ({"role": "user", "content": prompt},)
    return prompt


def split_turns(row: Fields, name: str, value: Any) -> tuple[tuple[Message, ...], str]:
    """Return (the turns before it, response). Raises DataError where the last turn is not the
    assistant's."""
    if isinstance(value, str):
        return (), value
    if isinstance(value, bool) or not row.needs_texts:
        return (), row.text(name)
    *before, last = row.messages(name, value)
    if last["role"] != "assistant":
        raise row.wrong(name, value, "messages that end with the assistant's turn")
    return tuple(before), last["content"]

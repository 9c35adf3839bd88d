"""A layout: its columns, and how a row becomes an example."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from rmrl.evaluation.formats.fields import Fields
from rmrl.reward_training.example import Example
from rmrl.types import Message

_NEED = "a text, or messages that end with the assistant's turn"


class Form(Protocol):
    """One layout. Its class subclasses this one."""

    columns: ClassVar[tuple[tuple[str, ...], ...]]
    """Sets of columns. A row that has one is told as this form."""

    def example(self, row: Fields) -> Example:
        """Return the row as an example. Raises DataError naming file, row and column."""
        ...


def source_of(row: Fields) -> str:
    """Return where a row comes from, "" where it does not say."""
    return str(row.get("data_source", row.get("source", "")))


def turns_of(row: Fields, name: str, value: Any) -> str | tuple[Message, ...]:
    """Return a text, or messages, whose role and content count. Raises DataError for others."""
    if isinstance(value, str):
        return value
    turns: list[Message] = []
    for turn in value if isinstance(value, list | tuple) else ():
        match turn:
            case {"role": str(role), "content": str(content)}:
                turns.append({"role": role, "content": content})
            case _:
                raise row.wrong(name, value, _NEED)
    if not turns:
        raise row.wrong(name, value, _NEED)
    return tuple(turns)


def split_turns(
    row: Fields, name: str, value: Any, *, has_prompt: bool
) -> tuple[tuple[Message, ...], str]:
    """Return (the prompt's turns, response) from a response column, whose turns may hold the prompt
    too. Raises DataError where its last turn is not the assistant's."""
    turns = turns_of(row, name, value)
    if isinstance(turns, str):
        return (), turns
    *before, last = turns
    if last["role"] != "assistant" or (has_prompt and before):
        need = "one turn of the assistant beside a prompt" if has_prompt else _NEED
        raise row.wrong(name, value, need)
    return tuple(before), last["content"]

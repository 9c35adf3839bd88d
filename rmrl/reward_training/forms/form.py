"""A layout: its columns, and how a row becomes an example."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from rmrl.data.dialogue import dialogue_turns
from rmrl.evaluation.formats.fields import Fields
from rmrl.reward_training.example import Example
from rmrl.types import Message

Turns = str | tuple[Message, ...]
"""A text, or messages."""
_NEED = "a text, or messages that end with the assistant's turn"
_TO_WRITE: Message = {"role": "assistant", "content": ""}
"""The last turn of a dialogue that ends with "Assistant:"."""


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


def prompt_of(row: Fields, name: str = "prompt") -> Turns:
    """Return the prompt in a column. A text that is a dialogue ("Human: ...") becomes its turns.
    Raises DataError for what is neither text nor messages."""
    value = row.need(name)
    if not isinstance(value, str):
        return _messages(row, name, value)
    turns = dialogue_turns(value) or value
    if turns[-1:] == (_TO_WRITE,):
        return turns[:-1]
    return turns


def response_of(row: Fields, name: str, value: Any, prompt: Turns) -> str:
    """Return a response, whose messages may repeat the prompt. Raises DataError where they hold
    other turns beside the assistant's last one."""
    before, response = split_turns(row, name, value)
    whole = prompt
    if isinstance(prompt, str):
        whole = ({"role": "user", "content": prompt},)
    if before not in ((), whole):
        raise row.wrong(name, value, "one turn of the assistant beside a prompt")
    return response


def split_turns(row: Fields, name: str, value: Any) -> tuple[tuple[Message, ...], str]:
    """Return (the turns before it, response). Raises DataError where the last turn is not the
    assistant's."""
    if isinstance(value, str):
        return (), value
    *before, last = _messages(row, name, value)
    if last["role"] != "assistant":
        raise row.wrong(name, value, _NEED)
    return tuple(before), last["content"]


def _messages(row: Fields, name: str, value: Any) -> tuple[Message, ...]:
    """Return messages, whose role and content count."""
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

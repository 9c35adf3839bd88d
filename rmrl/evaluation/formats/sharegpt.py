"""Turns and columns as LLaMA-Factory's files have them: ShareGPT's turns, a system text, and a
history of questions and answers (its data/README.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmrl.types import Message

_ROLES = {"human": "user", "gpt": "assistant", "observation": "tool", "function_call": "assistant"}


def as_turns(value: Any) -> Any:
    """Return a single turn as a list, and turns with `from` and `value` with `role` and `content`;
    other values unchanged."""
    if isinstance(value, Mapping):
        value = [value]
    return list(map(_turn, value)) if isinstance(value, list) else value


def _turn(turn: Any) -> Any:
    match turn:
        case {"from": role, "value": said} if "role" not in turn:
            return {"role": _ROLES.get(role, role), "content": said}
        case _:
            return turn


def history_turns(history: Any) -> Iterator[Message]:
    """Yield the turns of a list [[question, answer], ...]; none for a text or None. Raises
    ValueError for a list of anything else."""
    for entry in history if isinstance(history, list) else ():
        match entry:
            case [str(question), str(answer)]:
                yield {"role": "user", "content": question}
                yield {"role": "assistant", "content": answer}
            case _:
                raise ValueError(f"{entry} is no question with its answer")

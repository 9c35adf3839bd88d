"""A row's responses as conversations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.data.column_names import ColumnNames
from rmrl.data.csv_cells import is_message_list
from rmrl.data.problems import FieldError, shown
from rmrl.data.schema import as_messages, is_null
from rmrl.data.traces.stored_trace import DETAIL, ENV, SCORE, STATUS, STOP
from rmrl.types import STATUSES, Conversation, Messages


def conversations(
    fields: Mapping[str, Any], names: ColumnNames, prompt: Messages, count: int
) -> list[Conversation | None]:
    """Return one entry per response, `count` in all: its conversation if it is a message list or
    its harness recorded an error, else None. `prompt`: the row's own. Raises FieldError."""
    column = names.at("response")
    value: Any = names.value(fields, "response")
    if not isinstance(value, list | str):
        column = "responses"
        value = fields.get(column)
    recorded = [name for name in fields if name.startswith((ENV, SCORE))]
    if isinstance(value, str) and not recorded:
        return [None] * count
    answers = [value]
    if isinstance(value, list) and not is_message_list(value):
        answers = value
    statuses = _each(fields, STATUS, count)
    details = _each(fields, DETAIL, count)
    stops = _each(fields, STOP, count)
    rewards = [dict[str, float | None]() for _ in range(count)]
    for column in recorded:
        if column.startswith(SCORE):
            for own, value in zip(rewards, _each(fields, column, count), strict=True):
                own[column.removeprefix(SCORE)] = value
    if len(answers) != count:
        answers = [None] * count
    return [
        _conversation(
            answer,
            column,
            prompt,
            status=status or "ok",
            detail=str(detail or ""),
            stop=str(stop or ""),
            rewards=own,
        )
        for answer, status, detail, stop, own in zip(
            answers, statuses, details, stops, rewards, strict=True
        )
    ]


def call_lines(turn: Mapping[str, Any]) -> list[str]:
    """Return a line for each tool call in a turn."""
    return [
        "call: " + json.dumps(call, ensure_ascii=False, default=str)
        for call in turn.get("tool_calls") or ()
    ]


def _each(fields: Mapping[str, Any], name: str, count: int) -> Sequence[Any]:
    value = fields.get(name)
    if is_null(value):
        return [None] * count
    values = value if isinstance(value, list) else [value]
    if len(values) != count:
        raise FieldError(
            name,
            saw=shown(value),
            need=f"one value for each of {count} responses",
            todo="correct or drop the column",
        )
    return [None if is_null(each) else each for each in values]


def _conversation(
    answer: Any, column: str, prompt: Messages, *, status: Any, **recorded: Any
) -> Conversation | None:
    if status not in STATUSES:
        raise FieldError(
            STATUS,
            saw=shown(status),
            need=f"one of {', '.join(STATUSES)}",
            todo="correct or drop the column",
        )
    turns: Messages = ()
    if is_message_list(answer):
        turns = as_messages(answer, column)
    if not turns and status == "ok":
        return None
    # The list may begin with the prompt.
    whole = (*prompt, *turns)
    if tuple(turns[: len(prompt)]) == tuple(prompt):
        whole = tuple(turns)
    return Conversation(messages=whole, first=len(prompt), status=status, **recorded)

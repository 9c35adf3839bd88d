"""Rows of instruction data sets, as LLaMA-Factory (its data/README.md), ms-swift and TRL read them.

conversations                     ShareGPT's turns, {"from": "human", "value": "..."}
instruction, input, output        Alpaca's columns; the input stands behind the instruction
query, response                   ms-swift's
system, history                   beside these: a text, and [[question, answer], ...]
prompt, completion                TRL's
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmrl.data.column_names import ColumnNames
from rmrl.data.problems import FieldError
from rmrl.types import Message

_ANSWERED = frozenset({"response", "responses"})
_COLUMNS = {"instruction": "output", "query": "response"}
_ROLES = {"human": "user", "gpt": "assistant", "observation": "tool", "function_call": "assistant"}


def as_turns(value: Any) -> Any:
    """Return a single turn as a list, and turns with `from` and `value` with `role` and `content`.
    Other values are returned unchanged."""
    if isinstance(value, Mapping):
        value = [value]
    return list(map(_turn, value)) if isinstance(value, list) else value


def with_prompt(fields: Mapping[str, Any], names: ColumnNames) -> Mapping[str, Any]:
    """Return such a row with `messages`, or with `prompt` and `response`. Others are returned
    unchanged, and so are all where `names` has a column for the prompt."""
    if "prompt" in names.paths:
        return fields
    if "prompt" in fields or "messages" in fields:
        if "completion" in fields and not _ANSWERED & fields.keys():
            return {**fields, "response": fields["completion"]}
        return fields
    system = fields.get("system")
    turns: list[Any] = []
    if isinstance(system, str) and system.strip():
        turns.append({"role": "system", "content": system})
    if isinstance(fields.get("conversations"), list):
        return {**fields, "messages": [*turns, *as_turns(fields["conversations"])]}
    for asked, answered in _COLUMNS.items():
        text = fields.get(asked)
        if not isinstance(text, str):
            continue
        context = fields.get("input")
        if asked == "instruction" and isinstance(context, str) and context:
            text = f"{text}\n\n{context}"
        try:
            turns += history_turns(fields.get("history"))
        except ValueError as error:
            raise FieldError(
                "history",
                saw=str(error),
                need="a list of [question, answer]",
                todo="correct or drop the column",
            ) from error
        row = {**fields, "prompt": text}
        if turns:
            row["prompt"] = [*turns, {"role": "user", "content": text}]
        # Beside a policy's response the data set's own is a reference.
        if answered in fields and not _ANSWERED & fields.keys():
            row["response"] = fields[answered]
        return row
    return fields


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

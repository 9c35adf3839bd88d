"""Raw rows converted to `PromptRow`: checks on every column, with problems that name file, row and
column.

    column             type                                        absent or null means
    prompt             list of {role, content}, or a string        an error
    data_source        string                                      ""
    rm_prompt          string or list of messages, may be empty    the reward model reads the prompt
    rm_prompt_<name>   the same, for one reward model              rm_prompt
    reward_model       {style, ground_truth} or a plain string;    no reference answer
                       a list or mapping as ground_truth is its
                       JSON text, and rules get it as it is
    ability            string                                      ""
    extra_info         mapping, or one as JSON text                {}

`data.columns` names other columns for them (`rmrl.data.column_names`): prompt, id (the row's name
in messages and samples), reference (instead of reward_model), data_source, ability, extra_info,
rm_prompt, rm_prompt_<name>.

Also accepted: TRL's prompts that end in an assistant turn (the policy continues it), OpenAI's
content parts ({"type": "text"}), OpenAI's `messages` column where there is no `prompt` column
(a last assistant turn is the response, or the old one, and not in the prompt), and rows of
instruction data sets (`rmrl.data.instruction_rows`).
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

import numpy as np

from rmrl.data.column_names import ABSENT, ColumnNames, name_it
from rmrl.data.csv_cells import is_message_list, values_of
from rmrl.data.instruction_rows import with_prompt
from rmrl.data.json_text import StructuredReference, parsed, section_in
from rmrl.data.problems import MOST_PROBLEMS, FieldError, file_error, shown
from rmrl.data.rows import Row
from rmrl.data.surrogates import replaced
from rmrl.types import Message, Messages

ROLES = ("system", "user", "assistant", "tool", "developer")
RM_PROMPT = "rm_prompt"
_NEED_MESSAGES = 'a list of {"role": ..., "content": ...} messages or one string'


@dataclass(slots=True, kw_only=True)
class PromptRow:
    """One checked row, not yet tokenized."""

    id: str
    where: str
    """Location for messages, e.g. "data/train.parquet row 17"."""
    messages: tuple[Message, ...]
    plain_text: bool
    """Whether the prompt is a plain string; `messages` holds it as one user turn."""
    rm_prompts: Mapping[str, str | Messages]
    """See `rmrl.types.Prompt`. A null column is left out, an empty one is ""."""
    ground_truth: str | None
    data_source: str
    ability: str
    extra_info: Mapping[str, Any]


@dataclass(slots=True)
class CheckedRow:
    """A row whose columns are well-formed."""

    row: Row
    values: Mapping[str, Any]
    """The row's fields as every file format has them, with the prompt in its usual column."""
    prompt: PromptRow


def check_rows(rows: Iterable[Row], names: ColumnNames) -> Iterator[CheckedRow]:
    """Check one file's rows, in a stream.

    After the first problem nothing more is yielded; up to 5 problems in the file are collected and
    raised as one DataError.
    """
    problems: list[str] = []
    missing: set[str] = set()
    file = ""
    for row in rows:
        file = row.file
        checked, errors = check_row(row, names)
        absent: set[str] = set()
        for error in errors:
            if isinstance(error, MissingColumnError):
                absent.add(error.column)
                if error.column in missing:
                    continue
            problems.append(f"{row.where}, {error}")
        missing |= absent
        if len(problems) >= MOST_PROBLEMS:
            break
        if checked is not None and not problems:
            yield checked
    if problems:
        raise file_error(file, problems[:MOST_PROBLEMS])


def check_row(row: Row, names: ColumnNames) -> tuple[CheckedRow | None, list[FieldError]]:
    """Return the checked row and no error, or None and what is wrong with its columns."""
    fields = _Fields(row, names)
    prompt = fields.read()
    return None if fields.errors else CheckedRow(row, fields.values, prompt), fields.errors


class MissingColumnError(FieldError):
    """A required column is missing; reported once per file."""


class _Fields:
    """Reads one row's columns, and collects malformed ones in `errors`."""

    def __init__(self, row: Row, names: ColumnNames) -> None:
        values: Mapping[str, Any] = row.fields
        if row.text_cells:
            values = values_of(values, names)
        if not row.is_plain:
            values = plain(values)
        names.see(values)
        self.row = row
        self.values = values
        with suppress(FieldError):  # `read` finds it again
            self.values = with_prompt(values, names)
        self.names = names
        self.errors: list[FieldError] = []

    def read(self) -> PromptRow:
        """Return the checked row, of no use where `errors` is not empty."""
        fields = self.values
        names = self.names
        read_prompt = partial(prompt_messages, empty_ok=self.row.empty_prompt)
        messages, plain_text = self._try(read_prompt, fields, names) or ((), False)
        rm_prompts: dict[str, str | Messages] = {}
        for name in (*fields, *names.paths):
            if name.startswith(RM_PROMPT) and (name == RM_PROMPT or name[len(RM_PROMPT)] == "_"):
                prompt = self._try(_rm_prompt, names.given(fields, name), names.at(name))
                if prompt is not None:
                    rm_prompts[name[len(RM_PROMPT) + 1 :]] = prompt
        ability = names.given(fields, "ability")
        row_id = f"{self.row.label}:{self.row.number}"
        if "id" in names.paths:
            own_id = names.given(fields, "id")
            if not is_null(own_id):
                row_id = str(own_id)
        reference = "reference" if "reference" in names.paths else "reward_model"
        truth = names.given(fields, reference)
        return PromptRow(
            id=row_id,
            where=f"{self.row.file} {self.row.where}",
            messages=messages,
            plain_text=plain_text,
            rm_prompts=rm_prompts,
            ground_truth=self._try(ground_truth, truth, names.at(reference)),
            data_source=self._try(_data_source, fields, names) or "",
            ability="" if is_null(ability) else str(ability),
            extra_info=self._try(_extra_info, fields, names) or {},
        )

    def _try(self, read: Callable[..., Any], *args: Any) -> Any:
        try:
            return read(*args)
        except FieldError as error:
            self.errors.append(error)
            return None


def plain(value: Any) -> Any:
    """Convert numpy arrays and scalars, at any depth, to plain Python. Return other values
    unchanged."""
    if isinstance(value, np.ndarray):
        return list(map(plain, value.tolist()))
    if isinstance(value, np.generic):
        scalar: Any = value
        return scalar.item()
    if _is_mapping(value):
        return {key: plain(entry) for key, entry in value.items()}
    if _is_list(value) or isinstance(value, tuple):
        return list(map(plain, value))
    return value


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, (dict, Mapping))  # a dict is told at once, any other mapping slowly


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def is_null(value: object) -> bool:
    """Return whether the value is None, or the NaN that pandas writes for it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def prompt_messages(
    fields: Mapping[str, Any], names: ColumnNames, *, empty_ok: bool = False
) -> tuple[tuple[Message, ...], bool]:
    """Return (messages, whether the prompt is a plain string). Raises FieldError, unless `empty_ok`
    for a prompt without text too."""
    column = names.at("prompt")
    fields = with_prompt(fields, names)
    value = names.value(fields, "prompt")
    if value is ABSENT and "prompt" not in names.paths and "messages" in fields:
        column = "messages"
        value = fields[column]
    if value is ABSENT:
        raise _missing("prompt", fields, names)
    messages = as_messages(value, column)
    with_answer = column == "messages" or names.in_conversation()
    if with_answer and messages and messages[-1]["role"] == "assistant":
        messages = messages[:-1]
    if not empty_ok and not any(m["content"].strip() for m in messages):
        raise FieldError(
            column,
            saw=f"{shown(value)}, which has no text",
            need=_NEED_MESSAGES,
            todo="fill the prompt or drop the row",
        )
    return messages, isinstance(value, str)


def as_messages(value: Any, column: str) -> tuple[Message, ...]:
    """Convert a string to one user turn, a list to checked messages. Raises FieldError."""
    if isinstance(value, str):
        _refuse_json_text(value, column)
        return ({"role": "user", "content": value},)
    if not _is_list(value):
        todo = "correct the row, or name another column (data.columns.prompt=...)"
        if _is_mapping(value):
            todo = "put the message into a list"
        raise FieldError(column, saw=shown(value), need=_NEED_MESSAGES, todo=todo)
    return tuple([_message(turn, column, index) for index, turn in enumerate(value)])


def _message(turn: Any, column: str, index: int) -> Message:
    if not _is_mapping(turn):
        raise FieldError(
            column,
            saw=f"{shown(turn)} as message {index}",
            need='{"role": ..., "content": ...}',
            todo="correct the message",
        )
    if "role" not in turn or "content" not in turn:
        keys = ", ".join(map(str, turn)) or "none"
        todo = "correct the message"
        if "from" in turn:
            todo = "rename them (from -> role, value -> content)"
        raise FieldError(
            column,
            saw=f"the keys {keys} in message {index}",
            need="the keys role and content",
            todo=todo,
        )
    role = turn["role"]
    if role not in ROLES:
        todo = "correct the role"
        if role in ("human", "gpt"):
            todo = "write user for 'human' and assistant for 'gpt'"
        raise FieldError(
            column,
            saw=f"the role {shown(role)} in message {index}",
            need=f"one of {', '.join(ROLES)}",
            todo=todo,
        )
    # Parquet fills the keys of other rows' messages with nulls; chat templates test "is defined",
    # so nulls are removed.
    rest = {k: v for k, v in turn.items() if k not in ("role", "content") and v is not None}
    content = _content(turn["content"], column, index, empty_ok="tool_calls" in rest)
    return {"role": role, "content": content, **rest}


def _content(value: Any, column: str, index: int, *, empty_ok: bool) -> str:
    if isinstance(value, str):
        return value
    if value is None and empty_ok:
        return ""
    if _is_list(value) and value and all(map(_is_text_part, value)):
        return "".join(part["text"] for part in value)
    raise FieldError(
        column,
        saw=f"{shown(value)} as content of message {index}",
        need='a string, or a list of {"type": "text", "text": ...} (only text is supported)',
        todo="correct the message or drop the row",
    )


def _is_text_part(part: Any) -> bool:
    return _is_mapping(part) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _refuse_json_text(value: str, column: str) -> None:
    """Raise FieldError for a dumped message list, which would train on JSON syntax unnoticed."""
    if not value.lstrip().startswith("[") or '"role"' not in value:
        return
    try:
        parsed = json.loads(value)
    except (json.JSONDecodeError, RecursionError):
        return
    if is_message_list(parsed):
        raise FieldError(
            column,
            saw=f"messages written as JSON text: {shown(value)}",
            need=_NEED_MESSAGES,
            todo="parse the text (json.loads) when you write the file",
        )


def _rm_prompt(value: Any, column: str) -> str | tuple[Message, ...] | None:
    if is_null(value):
        return None
    return value if isinstance(value, str) else (as_messages(value, column) or "")


def ground_truth(value: Any, column: str) -> str | None:
    """Return the reference answer that stands in `column`. Numbers become text, a list or mapping a
    `StructuredReference`. Raises FieldError."""
    if column != "ground_truth":
        value = section_in(value, "ground_truth")
    inside = _is_mapping(value) and column != "ground_truth"
    if inside and (column == "reward_model" or "ground_truth" in value):
        close: list[str] = []
        if "ground_truth" not in value:
            close = difflib.get_close_matches("ground_truth", list(map(str, value)), cutoff=0.7)
        if close:
            raise FieldError(
                column,
                saw=f"the key '{close[0]}'",
                need="the key 'ground_truth'",
                todo="rename the key",
            )
        column = f"{column}.ground_truth"
        value = value.get("ground_truth")
    if is_null(value):
        return None
    if isinstance(value, list | dict):
        return StructuredReference(replaced(value))
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        need = "a string (the reference answer)"
        if "." not in column:
            need += ' or {"style": "rule", "ground_truth": "..."}'
        raise FieldError(
            column,
            saw=shown(value),
            need=need,
            todo="write it as text, e.g. with json.dumps, and parse it in your reward",
        )
    return str(value)


def _data_source(fields: Mapping[str, Any], names: ColumnNames) -> str:
    value = names.value(fields, "data_source")
    if value is ABSENT and "data_source" in names.paths:
        raise _missing("data_source", fields, names)
    if value is ABSENT or is_null(value):
        return ""
    if not isinstance(value, str):
        raise FieldError(
            names.at("data_source"),
            saw=shown(value),
            need="a string that names the row's source",
            todo="write the name as text",
        )
    return value


def _extra_info(fields: Mapping[str, Any], names: ColumnNames) -> Mapping[str, Any]:
    value = names.given(fields, "extra_info")
    if isinstance(value, str):
        value = parsed(value)
    if is_null(value):
        return {}
    if not _is_mapping(value):
        raise FieldError(
            names.at("extra_info"),
            saw=shown(value),
            need="a mapping",
            todo='write {"value": ...} for a single value',
        )
    return value


def _missing(name: str, fields: Mapping[str, Any], names: ColumnNames) -> MissingColumnError:
    column = names.at(name)
    return MissingColumnError(
        column,
        saw=f"only the columns {', '.join(fields) or '(none)'}",
        need=f"a column '{column}'",
        todo=name_it(fields, name, column),
    )

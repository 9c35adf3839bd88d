"""Rows with responses: one in `response`, or several in `responses`; checked like prompts, streamed
in batches.

    column                 type                              absent or null means
    response, responses    string, list of strings, or list  the last assistant turn of `messages`;
                           of messages, or list of such      else an error
                           lists (the last assistant turn
                           counts, those before it belong
                           to the prompt)
    response_tokens        number, or one per response       counted with the policy's tokenizer if
                                                             one is set; else 0, or an error where a
                                                             reward depends on it
    finish_reason          "stop" or "length", or one each   "stop"
    opens_thinking         true or false                     not known; whether the prompt ended
                                                             inside a thinking block, as a run
                                                             writes it
    ground_truth           same as inside `reward_model`     none; read only without `reward_model`,
                                                             as in a run's samples.jsonl

`data.columns` names other columns for all but ground_truth. The other columns are
`rmrl.data.schema`'s. `rmrl.data.groups` defines response groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.config.schema import ScoreDataConfig
from rmrl.data.column_names import (
    ABSENT,
    PROMPT_NAMES,
    RESPONSE_NAMES,
    ColumnNames,
    column_names,
    name_it,
    value_at,
)
from rmrl.data.conversations import call_lines, conversations
from rmrl.data.csv_cells import is_message_list
from rmrl.data.groups import group_columns, group_of
from rmrl.data.instruction_rows import with_prompt
from rmrl.data.problems import BadRow, FieldError, file_error, shown
from rmrl.data.rows import Row, file_labels, file_list, read_rows
from rmrl.data.sample import sampled_rows
from rmrl.data.schema import (
    CheckedRow,
    PromptRow,
    as_messages,
    check_row,
    check_rows,
    ground_truth,
    is_null,
    prompt_messages,
)
from rmrl.types import Message, Messages, Prompt

_SEVERAL = "responses"
NAMES = (*PROMPT_NAMES, *RESPONSE_NAMES)
_MOST_TOKENS = 2**31 - 1

CountTokens = Callable[[str], int]


@dataclass(slots=True, kw_only=True)
class AnsweredRow:
    """One row in a file: its prompt, its responses and all its fields."""

    prompt: Prompt
    prompts: tuple[Prompt, ...]
    """Prompt of each response: `prompt`, or with the turns before the response, where the responses
    are lists of messages that begin differently."""
    texts: tuple[str, ...]
    finish_reasons: tuple[str, ...]
    tokens: tuple[int, ...]
    several: bool
    """Whether the column holds a list. The scores are then written as lists too."""
    number: int
    """Position among the rows of all files, from 0."""
    group: bytes
    """Equal for the rows whose responses are compared with each other."""
    file: Path
    fields: Mapping[str, Any]
    size: int
    """Approximate size in bytes."""


def refusing_to_count(reason: str) -> CountTokens:
    """Return what stands in for a tokenizer that is not there. It raises FieldError for every row
    whose response_tokens are to be counted; `reason`: who needs them, as a sentence without its
    end."""

    def count(text: str) -> int:
        raise FieldError(
            "response_tokens",
            saw=f"no number for {shown(text)}",
            need=f"the tokens of every response ({reason})",
            todo="add the column, or give data.tokenizer=<the policy's folder or hub id>",
        )

    return count


def answered_rows(
    settings: ScoreDataConfig, *, count_tokens: CountTokens | None = None
) -> Iterator[AnsweredRow]:
    """Return the rows in `data.files`, all or as `data.max_rows` and `data.sample` say, without the
    bad ones with `data.on_bad_row=quarantine`.

    Raises DataError naming file, row and column, ConfigError for data.files.
    """
    reader = ResponseReader(settings, count_tokens)
    every_row = numbered_rows(reader, file_list(settings.files, "data.files"))
    return (row for _, row in every_row if isinstance(row, AnsweredRow))


def numbered_rows(
    reader: ResponseReader, paths: Sequence[Path]
) -> Iterator[tuple[int, AnsweredRow | BadRow]]:
    """Yield (the file's position, row) for `answered_rows`' rows; readable ones are numbered from
    0. Raises DataError for a bad row, unless data.on_bad_row=quarantine."""
    settings = reader.settings

    def every_row() -> Iterator[tuple[int, AnsweredRow | BadRow]]:
        readable = 0
        masks = sampled_rows(settings, paths)
        for position, (path, label) in enumerate(zip(paths, file_labels(paths), strict=True)):
            mask = masks[position]
            if mask is not None and not mask.any():
                continue
            if settings.on_bad_row == "quarantine":
                rows = reader.sorted_out(path, label, first=readable, wanted_N=mask)
            else:
                rows = reader.rows(path, label, numbers=itertools.count(readable), wanted_N=mask)
            for row in rows:
                readable += isinstance(row, AnsweredRow)
                yield position, row

    # What is behind the last row is not even opened: it may be malformed.
    most = settings.max_rows if settings.max_rows >= 0 else None
    yield from itertools.islice(every_row(), most)
    reader.names.refuse_unseen(NAMES)


def answered(
    rows: Iterable[Row], settings: ScoreDataConfig, *, count_tokens: CountTokens | None = None
) -> Iterator[AnsweredRow]:
    """Rows that are in memory, checked as a file's. Errors as in `answered_rows`."""
    reader = ResponseReader(settings, count_tokens)
    yield from reader.answered(rows, numbers=itertools.count())
    reader.names.refuse_unseen(NAMES)


def groups_together(rows: Sequence[AnsweredRow]) -> list[AnsweredRow]:
    """Return the rows with a group's behind one another, ordered as the groups begin."""
    first: dict[bytes, int] = {}
    for row in rows:
        first.setdefault(row.group, row.number)
    return sorted(rows, key=lambda row: first[row.group])


def batches(
    rows: Iterator[AnsweredRow], sizes: Iterator[int], *, whole_groups: bool
) -> Iterator[list[AnsweredRow]]:
    """Yield batches of at least as many responses as the next entry in `sizes`. With `whole_groups`
    no batch ends inside a group."""
    batch: list[AnsweredRow] = []
    responses = 0
    size = next(sizes)
    for row in rows:
        if responses >= size and not (whole_groups and row.group == batch[-1].group):
            yield batch
            batch = []
            responses = 0
            size = next(sizes)
        batch.append(row)
        responses += len(row.texts)
    if batch:
        yield batch


class ResponseReader:
    """Reads and checks rows, one file after another."""

    def __init__(
        self,
        settings: ScoreDataConfig,
        count_tokens: CountTokens | None = None,
        *,
        with_groups: bool = True,
    ) -> None:
        """Without `with_groups` the group of a row is b"", unless data.group_key names columns."""
        self.settings = settings
        self.names = column_names(settings)
        self._count_tokens = count_tokens
        self._group_columns = group_columns(settings.group_key)
        self._with_groups = with_groups or bool(self._group_columns)

    def rows(
        self,
        path: Path,
        label: str,
        *,
        numbers: Iterable[int],
        wanted_N: np.ndarray | None = None,
    ) -> Iterator[AnsweredRow]:
        """Yield a file's rows, those where `wanted_N` is true, with the next number from `numbers`
        each. Raises DataError with up to 5 problems in a file."""
        return self.answered(read_rows(path, label=label, wanted_N=wanted_N), numbers=numbers)

    def answered(self, rows: Iterable[Row], *, numbers: Iterable[int]) -> Iterator[AnsweredRow]:
        """Check raw rows; `numbers` as in `rows`."""
        for checked, number in zip(check_rows(rows, self.names), numbers, strict=False):
            try:
                yield self._answered(checked, number)
            except FieldError as error:
                row = checked.row
                raise file_error(row.file, [f"{row.where}, {error}"]) from error

    def one(self, row: Row, number: int) -> AnsweredRow:
        """Check one raw row. Raises FieldError with its first problem."""
        checked, errors = check_row(row, self.names)
        if checked is None:
            raise errors[0]
        return self._answered(checked, number)

    def sorted_out(
        self,
        path: Path,
        label: str,
        *,
        first: int = 0,
        wanted_N: np.ndarray | None = None,
    ) -> Iterator[AnsweredRow | BadRow]:
        """Yield every row in a file, or those where `wanted_N` is true: a readable one, numbered
        from `first`, or a bad one with its reason."""
        number = first
        for row in read_rows(path, label=label, wanted_N=wanted_N, with_problems=True):
            if row.problem:
                yield _bad(row, row.problem)
                continue
            try:
                checked, errors = check_row(row, self.names)
                if checked is None:
                    yield _bad(row, "; ".join(map(str, errors)))
                else:
                    yield self._answered(checked, number)
                    number += 1
            except FieldError as error:
                yield _bad(row, str(error))
            except RecursionError:
                yield _bad(row, "its values are nested too deep")

    def _answered(self, checked: CheckedRow, number: int) -> AnsweredRow:
        """Raises FieldError."""
        row = checked.row
        names = self.names
        values = checked.values
        texts, several, before = answers_in(values, names)
        talks = conversations(values, names, checked.prompt.messages, len(texts))
        truth = checked.prompt.ground_truth
        if truth is None and "reference" not in names.paths:
            truth = ground_truth(values.get("ground_truth"), "ground_truth")
        group = b""
        if self._with_groups:
            group = group_of(row.fields, checked.prompt.messages, self._group_columns)
        opened = names.given(values, "opens_thinking")
        reasons = names.given(values, "finish_reason")
        counts = names.given(values, "response_tokens")
        facts = {"truth": truth, "opened": opened}
        prompt = _prompt(checked.prompt, before[0], **facts)
        prompts = [prompt] * len(before)
        if before.count(before[0]) < len(before):
            prompts = [_prompt(checked.prompt, turns, **facts) for turns in before]
            prompt = _prompt(checked.prompt, (), **facts)
        for i, talk in enumerate(talks):
            if talk is not None:
                prompts[i] = replace(prompts[i], conversation=talk)
        return AnsweredRow(
            prompt=prompt,
            prompts=tuple(prompts),
            texts=texts,
            finish_reasons=_finish_reasons(reasons, texts),
            tokens=_token_counts(counts, texts, self._count_tokens),
            several=several,
            number=number,
            group=group,
            file=_path(row.file),
            fields=row.fields,
            size=row.size,
        )


@lru_cache(maxsize=64)
def _path(file: str) -> Path:
    return Path(file)


def _bad(row: Row, reason: str) -> BadRow:
    return BadRow(
        file=row.file,
        row=row.number,
        line=row.line,
        reason=reason,
        text=row.text,
        fields=row.fields or None,
    )


def _prompt(checked: PromptRow, before: Messages, *, truth: str | None, opened: Any) -> Prompt:
    """`before`: turns before the response, which may begin with the prompt's."""
    messages = conversation(checked.messages, before)
    if not (is_null(opened) or isinstance(opened, bool)):
        raise FieldError(
            "opens_thinking",
            saw=shown(opened),
            need="true or false",
            todo="correct or drop the column",
        )
    return Prompt(
        id=checked.id,
        messages=messages,
        token_ids=(),
        rm_prompts=checked.rm_prompts,
        ground_truth=truth,
        data_source=checked.data_source,
        ability=checked.ability,
        extra_info=checked.extra_info,
        plain_text=checked.plain_text and len(messages) == len(checked.messages),
        opens_thinking=opened,
    )


def conversation(messages: Messages, before: Messages) -> tuple[Message, ...]:
    """Return the prompt with the turns `before` the response, which may begin with the prompt."""
    if tuple(before[: len(messages)]) == tuple(messages):
        return tuple(before)
    return (*messages, *before)


def prompt_text(fields: Mapping[str, Any], names: ColumnNames, before: Messages) -> str:
    """Return a row's prompt as a text to look at: messages with roles and tool calls, then the
    turns `before` the response. A value that could not be scored is returned as it stands."""
    try:
        messages, plain_text = prompt_messages(fields, names, empty_ok=True)
    except FieldError:
        value = value_at(fields, names.at("prompt"))
        return "" if value is None else str(value)
    if plain_text and not before:
        return str(messages[0]["content"])
    lines: list[str] = []
    for turn in conversation(messages, before):
        lines += [f"[{turn['role']}] {turn['content']}", *call_lines(turn)]
    return "\n".join(lines)


def answers_in(
    fields: Mapping[str, Any], names: ColumnNames
) -> tuple[tuple[str, ...], bool, tuple[Messages, ...]]:
    """Return a row's responses, whether they are a list, and for each the turns before it,
    where it is the last assistant turn in a list of messages. Raises FieldError."""
    column = names.at("response")
    fields = with_prompt(fields, names)
    value = names.value(fields, "response")
    if isinstance(value, str):
        return (value,), False, ((),)
    if (value is ABSENT or is_null(value)) and _SEVERAL in fields:
        column = _SEVERAL
        value = fields[column]
    is_answered = value is ABSENT and "response" not in names.paths
    talk: Any = fields.get("messages")
    if is_answered and "prompt" not in fields and is_message_list(talk):
        ends_in = talk[-1]["role"]
        if ends_in == "assistant":
            column = "messages"
            value = talk
    if value is ABSENT:
        todo = name_it(fields, "response", column)
        if {"chosen", "rejected"} <= fields.keys():
            todo = f"rmrl eval eval.format=pairs scores pairs; or {todo}"
        raise FieldError(
            column,
            saw=f"only the columns {', '.join(fields) or '(none)'}",
            need=f"a column '{column}' (or '{_SEVERAL}')",
            todo=todo,
        )
    several = isinstance(value, list) and not is_message_list(value)
    answers: list[tuple[str, Messages] | None] = [
        _answer(answer, column) for answer in (value if several else [value])
    ]
    whole = [answer for answer in answers if answer is not None]
    if not answers or len(whole) < len(answers):
        raise FieldError(
            column,
            saw=shown(value),
            need="a string, messages with an assistant turn, or a list of either",
            todo="fill the response or drop the row",
        )
    texts, before = zip(*whole, strict=True)
    return texts, several, before


def _answer(value: Any, column: str) -> tuple[str, Messages] | None:
    """Return a text without turns before it, or the last assistant turn in a list of messages with
    those before it; None for anything else. Raises FieldError for malformed messages."""
    if isinstance(value, str):
        return value, ()
    if is_message_list(value):
        turns = as_messages(value, column)
        for place in range(len(turns) - 1, -1, -1):
            if turns[place]["role"] == "assistant":
                return str(turns[place]["content"]), turns[:place]
    return None


def _token_counts(
    value: Any, texts: Sequence[str], count_tokens: CountTokens | None
) -> tuple[int, ...]:
    if is_null(value):
        if count_tokens is None:
            return (0,) * len(texts)
        return tuple(map(count_tokens, texts))
    counts = value if isinstance(value, list) else [value]
    if len(counts) != len(texts) or not all(map(_is_count, counts)):
        raise FieldError(
            "response_tokens",
            saw=shown(value),
            need=_one_each("a whole number", texts),
            todo="correct or drop the column",
        )
    return tuple(map(int, counts))


def _finish_reasons(value: Any, texts: Sequence[str]) -> tuple[str, ...]:
    if is_null(value):
        return ("stop",) * len(texts)
    reasons = value if isinstance(value, list) else [value]
    if len(reasons) != len(texts) or not all(reason in ("stop", "length") for reason in reasons):
        raise FieldError(
            "finish_reason",
            saw=shown(value),
            need=_one_each('"stop" or "length"', texts),
            todo="correct or drop the column",
        )
    return tuple(reasons)


def _is_count(number: Any) -> bool:
    """Accept whole floats too: pandas converts integers to floats where a column has gaps."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    # Neither infinity nor NaN is an integer.
    is_whole = isinstance(number, int) or number.is_integer()
    return is_whole and 0 <= number <= _MOST_TOKENS


def _one_each(requirement: str, texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return requirement
    return f"{requirement} for each of {len(texts)} responses"

"""Rows that carry responses: one in `response`, or several in `responses`; checked like prompts, streamed in batches.

    response | responses    string, or list of strings        `data.response_key` names another column
    response_tokens         number, or one per response       counted with the policy's tokenizer where it is given, else 0
    finish_reason           "stop" or "length", or one each   "stop"

The other columns are those of `rmrl.data.schema`. Responses to one prompt, in one row or in rows that follow each other, form a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.config.schema import ScoreDataConfig
from rmrl.data.problems import FieldError, file_error, shown
from rmrl.data.rows import Row, file_labels, file_list, read_rows
from rmrl.data.schema import check_rows, plain
from rmrl.types import Prompt

_SEVERAL = "responses"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRow:
    """One row of a file: its prompt and its responses, and everything it held."""

    prompt: Prompt
    texts: tuple[str, ...]
    finish_reasons: tuple[str, ...]
    tokens: tuple[int, ...]
    several: bool
    """The column held a list: what is written back is a list as well."""
    group: int
    fields: Mapping[str, Any]


def answered_rows(settings: ScoreDataConfig, *, count_tokens: Callable[[str], int] | None) -> Iterator[AnsweredRow]:
    """All rows of `data.files`, at most `data.max_rows`. Raises DataError naming file, row and column, ConfigError for data.files."""
    paths = file_list(settings.files, "data.files")
    group, before, left = -1, None, settings.max_rows if settings.max_rows >= 0 else None
    for path, label in zip(paths, file_labels(paths), strict=True):
        for row, checked in _checked(path, label, settings):
            if left == 0:
                return
            left = None if left is None else left - 1
            if checked.messages != before:
                group, before = group + 1, checked.messages
            prompt = Prompt(
                id=checked.id,
                messages=checked.messages,
                token_ids=(),
                rm_prompts=checked.rm_prompts,
                ground_truth=checked.ground_truth,
                data_source=checked.data_source,
                ability=checked.ability,
                extra_info=checked.extra_info,
            )
            yield _answered(row, prompt, group, settings.response_key, count_tokens)


def batches(rows: Iterator[AnsweredRow], size: int) -> Iterator[list[AnsweredRow]]:
    """At least `size` responses each, groups kept whole."""
    batch: list[AnsweredRow] = []
    for row in rows:
        if batch and row.group != batch[-1].group and sum(len(r.texts) for r in batch) >= size:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _checked(path: Any, label: str, settings: ScoreDataConfig) -> Iterator[tuple[Row, Any]]:
    """Each raw row beside its checked prompt; `check_rows` streams, so the two walk side by side."""
    seen: list[Row] = []

    def remembered() -> Iterator[Row]:
        for row in read_rows(path, label=label):
            seen.append(row)
            yield row

    for checked in check_rows(remembered(), prompt_key=settings.prompt_key, reward_fn_key=settings.reward_fn_key):
        yield seen[-1], checked
        seen.clear()


def _answered(row: Row, prompt: Prompt, group: int, key: str, count_tokens: Callable[[str], int] | None) -> AnsweredRow:
    fields = {name: plain(value) for name, value in row.fields.items()}
    try:
        texts, several = _texts(fields, key)
        tokens = _numbers(fields, texts, count_tokens)
        reasons = _reasons(fields, texts)
    except FieldError as error:
        raise file_error(row.file, [f"{row.where}, {error}"]) from error
    return AnsweredRow(
        prompt=prompt, texts=texts, finish_reasons=reasons, tokens=tokens, several=several, group=group, fields=row.fields
    )


def _texts(fields: Mapping[str, Any], key: str) -> tuple[tuple[str, ...], bool]:
    column = _SEVERAL if key not in fields and _SEVERAL in fields else key
    if column not in fields:
        columns = ", ".join(fields) or "(none)"
        raise FieldError(column, saw=f"only the columns {columns}", need=f"a column '{column}'", todo="name it: data.response_key=...")
    value = fields[column]
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise FieldError(column, saw=shown(value), need="a string, or a list of strings", todo="fill the response or drop the row")
    return tuple(texts), isinstance(value, list)


def _numbers(fields: Mapping[str, Any], texts: Sequence[str], count_tokens: Callable[[str], int] | None) -> tuple[int, ...]:
    given = fields.get("response_tokens")
    if given is None:
        return tuple(count_tokens(text) if count_tokens else 0 for text in texts)
    numbers = given if isinstance(given, list) else [given]
    if len(numbers) != len(texts) or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
        raise FieldError("response_tokens", saw=shown(given), need=f"{len(texts)} whole number(s)", todo="one per response")
    return tuple(numbers)


def _reasons(fields: Mapping[str, Any], texts: Sequence[str]) -> tuple[str, ...]:
    given = fields.get("finish_reason")
    if given is None:
        return ("stop",) * len(texts)
    reasons = given if isinstance(given, list) else [given]
    if len(reasons) != len(texts) or not all(reason in ("stop", "length") for reason in reasons):
        raise FieldError("finish_reason", saw=shown(given), need='"stop" or "length", one per response', todo="mend or drop the column")
    return tuple(reasons)



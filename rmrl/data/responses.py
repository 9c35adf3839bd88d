"""Rows that carry responses: one in `response`, or several in `responses`; checked like prompts, streamed in batches.

    response | responses    string, or list of strings        `data.response_key` names another column
    response_tokens         number, or one per response       counted with the policy's tokenizer where it is given, else 0
    finish_reason           "stop" or "length", or one each   "stop"
    ground_truth            as inside `reward_model`          where there is no `reward_model`: a run's samples.jsonl can be scored as it is

The other columns are those of `rmrl.data.schema`. Responses to one prompt, in one row or in rows that follow each other, form a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmrl.config.schema import ScoreDataConfig
from rmrl.data.problems import FieldError, file_error, shown
from rmrl.data.rows import Row, file_labels, file_list, read_rows
from rmrl.data.schema import PromptRow, check_rows, ground_truth, is_null, plain
from rmrl.data.source_table import JsonTypes, parquet_schema, unified
from rmrl.errors import DataError
from rmrl.types import Prompt

_SEVERAL = "responses"

CountTokens = Callable[[str], int]


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
    file: Path
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a first look at all rows found."""

    rows: int
    responses: int
    several: bool
    """Rows hold lists of responses."""
    schema: pa.Schema | None
    """Of the rows in parquet; None where nobody asked."""


def survey(settings: ScoreDataConfig, *, for_parquet: bool) -> Survey:
    """Reads every row once, so that a bad one stops a job before anything is scored and not after hours.

    Raises DataError as `answered_rows` does and, `for_parquet`, where columns mix types or only some rows hold several responses.
    """
    rows = responses = 0
    several: bool | None = None
    json_types: dict[Path, JsonTypes] = {}
    for row in answered_rows(settings):
        rows, responses = rows + 1, responses + len(row.texts)
        if not for_parquet:
            continue
        several = row.several if several is None else several
        if row.several != several:
            raise DataError(
                f"{row.prompt.id} holds {_said(row.several)}, the rows before it {_said(several)}; parquet needs one type per column: "
                "write JSON lines (out=....jsonl), or score the files one by one"
            )
        if row.file.suffix != ".parquet":
            json_types.setdefault(row.file, JsonTypes(row.file)).add(row.fields)
    if not rows:
        raise DataError(f"data.max_rows={settings.max_rows} leaves no row to score; give 1 or more, or -1 for all")
    return Survey(rows=rows, responses=responses, several=bool(several), schema=_schema(settings, json_types) if for_parquet else None)


def answered_rows(settings: ScoreDataConfig, *, count_tokens: CountTokens | None = None) -> Iterator[AnsweredRow]:
    """All rows of `data.files`, at most `data.max_rows`. Raises DataError naming file, row and column, ConfigError for data.files."""
    paths = file_list(settings.files, "data.files")
    group, before, left = -1, None, settings.max_rows
    for path, label in zip(paths, file_labels(paths), strict=True):
        for row, checked in _checked(path, label, settings):
            if left == 0:
                return
            left -= 1
            if checked.messages != before:
                group, before = group + 1, checked.messages
            yield _answered(row, checked, group, settings.response_key, count_tokens)


def batches(rows: Iterator[AnsweredRow], size: int, *, whole_groups: bool) -> Iterator[list[AnsweredRow]]:
    """Batches of at least `size` responses; one that ends inside a group only without `whole_groups`."""
    batch: list[AnsweredRow] = []
    held = 0
    for row in rows:
        if held >= size and not (whole_groups and row.group == batch[-1].group):
            yield batch
            batch, held = [], 0
        batch.append(row)
        held += len(row.texts)
    if batch:
        yield batch


def _schema(settings: ScoreDataConfig, json_types: Mapping[Path, JsonTypes]) -> pa.Schema:
    found = []
    for path in dict.fromkeys(file_list(settings.files, "data.files")):
        if path.suffix == ".parquet":
            found.append((path, parquet_schema(path)))
        elif path in json_types:
            found.append((path, json_types[path].schema()))
    return unified(found)


def _checked(path: Path, label: str, settings: ScoreDataConfig) -> Iterator[tuple[Row, PromptRow]]:
    """Each raw row beside its checked prompt; `check_rows` streams, so the two walk side by side."""
    seen: list[Row] = []

    def remembered() -> Iterator[Row]:
        for row in read_rows(path, label=label):
            seen[:] = [row]
            yield row

    for checked in check_rows(remembered(), prompt_key=settings.prompt_key, reward_fn_key=settings.reward_fn_key):
        yield seen[0], checked


def _answered(row: Row, checked: PromptRow, group: int, key: str, count_tokens: CountTokens | None) -> AnsweredRow:
    fields = {name: plain(row.fields.get(name)) for name in (key, _SEVERAL, "response_tokens", "finish_reason", "ground_truth")}
    try:
        texts, several = _texts(row.fields, fields, key)
        tokens = _numbers(fields["response_tokens"], texts, count_tokens)
        reasons = _reasons(fields["finish_reason"], texts)
        prompt = _prompt(checked, fields["ground_truth"])
    except FieldError as error:
        raise file_error(row.file, [f"{row.where}, {error}"]) from error
    return AnsweredRow(
        prompt=prompt,
        texts=texts,
        finish_reasons=reasons,
        tokens=tokens,
        several=several,
        group=group,
        file=Path(row.file),
        fields=row.fields,
    )


def _prompt(checked: PromptRow, truth: Any) -> Prompt:
    return Prompt(
        id=checked.id,
        messages=checked.messages,
        token_ids=(),
        rm_prompts=checked.rm_prompts,
        ground_truth=ground_truth({"reward_model": truth}) if checked.ground_truth is None else checked.ground_truth,
        data_source=checked.data_source,
        ability=checked.ability,
        extra_info=checked.extra_info,
    )


def _texts(columns: Mapping[str, Any], fields: Mapping[str, Any], key: str) -> tuple[tuple[str, ...], bool]:
    column = _SEVERAL if is_null(fields[key]) and _SEVERAL in columns else key
    if column not in columns:
        names = ", ".join(columns) or "(none)"
        todo = "name the column that holds it: data.response_key=..."
        raise FieldError(column, saw=f"only the columns {names}", need=f"a column '{column}' (or '{_SEVERAL}')", todo=todo)
    value = fields[column]
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise FieldError(column, saw=shown(value), need="a string, or a list of strings", todo="fill the response or drop the row")
    return tuple(texts), isinstance(value, list)


def _numbers(given: Any, texts: Sequence[str], count_tokens: CountTokens | None) -> tuple[int, ...]:
    if is_null(given):
        return tuple(count_tokens(text) if count_tokens else 0 for text in texts)
    numbers = given if isinstance(given, list) else [given]
    if len(numbers) != len(texts) or not all(_is_count(n) for n in numbers):
        raise FieldError("response_tokens", saw=shown(given), need=_one_each("a whole number", texts), todo="mend or drop the column")
    return tuple(int(n) for n in numbers)


def _reasons(given: Any, texts: Sequence[str]) -> tuple[str, ...]:
    if is_null(given):
        return ("stop",) * len(texts)
    reasons = given if isinstance(given, list) else [given]
    if len(reasons) != len(texts) or not all(reason in ("stop", "length") for reason in reasons):
        raise FieldError("finish_reason", saw=shown(given), need=_one_each('"stop" or "length"', texts), todo="mend or drop the column")
    return tuple(reasons)


def _is_count(number: Any) -> bool:
    """Whole numbers; pandas makes floats of them where a column has gaps."""
    return isinstance(number, int | float) and not isinstance(number, bool) and number >= 0 and number == int(number)


def _one_each(what: str, texts: Sequence[str]) -> str:
    return what if len(texts) == 1 else f"{what} for each of {len(texts)} responses"


def _said(several: bool) -> str:
    return "a list of responses" if several else "one response"

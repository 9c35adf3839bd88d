"""A file's scored responses, one by one: a run's samples.jsonl, or what `rmrl score` wrote.

A response's columns, for conditions and for sorting: `reward`, `<component>` (its score),
`status_<component>`, and every plain value in its row (`step`, `prompt_id`, `response_tokens`,
...). A row with several responses counts as several.

Prompt, response and reference are read under the names that a scored file has in `rmrl_columns`, or
under data.columns' names.
"""

from __future__ import annotations

import heapq
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmrl.config.command_line import names_columns
from rmrl.config.schema import ScoreConfig
from rmrl.data.column_names import (
    DEFAULT_NAMES,
    NAMES_COLUMN,
    ColumnNames,
    column_names,
    names_in,
    value_at,
)
from rmrl.data.csv_cells import is_message_list, scored_values_of
from rmrl.data.json_text import json_text
from rmrl.data.problems import FieldError
from rmrl.data.responses import NAMES, answers_in, prompt_text
from rmrl.data.rows import read_rows
from rmrl.data.schema import plain
from rmrl.data.traces.stored_trace import ENV
from rmrl.errors import ConfigError, DataError
from rmrl.offline.conditions import Condition
from rmrl.offline.manifest import scored_names
from rmrl.registry import did_you_mean
from rmrl.types import Messages

_PARTS = ("score", "status", "detail", "raw", "rendered", "read", "extra")
_SEPARATORS = ("_", "/")
_STATUS_COLUMN = re.compile("status[_/](.*)", re.DOTALL)
_SHORT = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One response with its verdicts."""

    where: str
    """File and row, for the heading."""
    prompt: str
    response: str
    reference: str | None
    columns: Mapping[str, Any]
    verdicts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Component -> score, status, detail, raw, rendered, read, extra: those that the file has."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Component -> weight of its score in this row, where the file has it."""


def names_of_words(words: Sequence[str], command: str) -> ColumnNames:
    """Return the column names that stand on a command line. Raises ConfigError for other words."""
    if not words:
        return DEFAULT_NAMES
    others = [word for word in words if not names_columns(word)]
    if others:
        raise ConfigError(
            f"{' '.join(others)}: rmrl {command} takes no such word; name the columns of a file"
            " with data.columns={prompt: question, response: answer}, and see rmrl"
            f" {command} --help for the rest"
        )
    from rmrl.config.load import compose_config  # Hydra, which most files do not need

    return column_names(compose_config(words, ScoreConfig).data)


def responses(path: Path, names: ColumnNames = DEFAULT_NAMES) -> Iterator[Scored]:
    """Yield every response in a file, in order. `names`: of columns, before those that the file has
    itself.

    If a file was scored twice, the last rewards are components and the first ones stay columns.
    Raises DataError where the file cannot be read, holds no scores, or lacks a column in `names`
    everywhere.
    """
    own = scored_names(path)
    for row in read_rows(path):
        try:
            names_here = names_in(row.fields)
        except FieldError as error:
            raise DataError(f"{path} {row.where}, {error}") from error
        if names.paths:
            names_here = names_here.with_others(names)
        fields = row.fields
        if row.text_cells:
            fields = scored_values_of(fields, names_here)
        fields = plain(fields)
        names.see(fields)
        for single, text, before in _singles(fields, names_here):
            if isinstance(single.get("scores"), Mapping):
                components = list(single["scores"])
            else:
                matches = map(_STATUS_COLUMN.fullmatch, single)
                components = [match[1] for match in matches if match is not None]
            if own.intersection(components):
                components = [name for name in components if name in own or name.startswith(ENV)]
            if not components and "reward" not in single:
                raise DataError(
                    f"{path} {row.where}: saw only the columns {', '.join(fields)}; need `reward`"
                    " and score_<name> columns, as rmrl score writes them, or a run's"
                    " samples.jsonl"
                )
            where = f"{row.label} {row.where}"
            yield _scored(where, single, names_here, components, response=text, before=before)
    names.refuse_unseen(NAMES)


def select(
    items: Iterator[Scored],
    *,
    where: Condition | None,
    by: str,
    worst: int | None,
    best: int | None,
    count: int,
) -> list[Scored]:
    """Return the responses for which `where` is true: the `worst` or `best` by column `by`, else
    the first `count`. Only these are held in memory.

    A response without a value in `by` is not among the worst or best. Raises ConfigError for an
    absent column.
    """
    chosen = items if where is None else _matching(items, where)
    if worst is None and best is None:
        return list(itertools.islice(chosen, count))
    valued = (item for item in chosen if _value(item, by) is not None)
    if worst is not None:
        return heapq.nsmallest(worst, valued, key=lambda item: _value(item, by))
    return heapq.nlargest(best or 0, valued, key=lambda item: _value(item, by))


def _matching(items: Iterator[Scored], where: Condition) -> Iterator[Scored]:
    """Yield the responses for which `where` is true. A column from earlier rows that a row lacks is
    missing (None) there."""
    absent: dict[str, None] = {}
    for item in items:
        absent |= dict.fromkeys(item.columns)
        if where({**absent, **item.columns}):
            yield item


def page(item: Scored, *, full: bool = False) -> str:
    """Format the response with all information in the file; long texts are shortened unless
    `full`."""
    lines = [
        f"=== {item.where}",
        *_block("prompt", item.prompt, full),
        *_block("response", item.response, full),
    ]
    if item.reference is not None:
        lines += _block("reference", item.reference, full)
    for name, verdict in item.verdicts.items():
        score = verdict.get("score")
        text = f"none ({verdict.get('status')})" if score is None else f"{score:.6g}"
        if verdict.get("detail"):
            text += f"  {verdict['detail']}"
        lines.append(f"--- {name}: {text}")
        for title, part in (("reads", "read"), ("input", "rendered"), ("output", "raw")):
            if verdict.get(part):
                lines += _block(title, str(verdict[part]), full)
    reward = item.columns.get("reward")
    lines.append("reward: none" if reward is None else f"reward: {reward:.6g}")
    return "\n".join(lines)


def _singles(
    fields: Mapping[str, Any], names: ColumnNames
) -> Iterator[tuple[Mapping[str, Any], str, Messages]]:
    """Yield (row, response, turns before it) for each response in a row; lists as long as the
    responses' are split too."""
    try:
        texts, several, before = answers_in(fields, names)
    except FieldError:
        value = value_at(fields, names.at("response"))
        yield fields, "" if value is None else str(value), ()
        return
    if not several:
        yield fields, texts[0], before[0]
        return
    for i, text in enumerate(texts):
        single = dict(fields)
        for name, value in fields.items():
            if isinstance(value, list) and len(value) == len(texts) and not is_message_list(value):
                single[name] = value[i]
        yield single, text, before[i]


def _scored(
    where: str,
    fields: Mapping[str, Any],
    names: ColumnNames,
    components: Sequence[str],
    *,
    response: str,
    before: Messages,
) -> Scored:
    values: dict[str, Any] = {**fields, "response": response}
    for name in names.paths:
        if name != "response":
            values[name] = value_at(fields, names.at(name))
    columns: dict[str, Any] = {}
    for name, value in values.items():
        is_plain = value is None or isinstance(value, str | int | float | bool)
        if is_plain and name != NAMES_COLUMN:
            columns[name] = value
    truth = values.get("reward_model")
    if "reference" in names.paths:
        truth = values["reference"]
    is_named = "reference" in names.paths
    if isinstance(truth, Mapping) and ("ground_truth" in truth or not is_named):
        truth = truth.get("ground_truth")
    elif not is_named:
        truth = fields.get("ground_truth", truth)
    if isinstance(truth, list | dict):
        truth = json_text(truth)
    verdicts: dict[str, Mapping[str, Any]] = {}
    for name in components:
        verdicts[name] = _verdict(fields, name)
        columns[name] = verdicts[name].get("score")
        columns[f"status_{name}"] = verdicts[name].get("status")
    weights = fields.get("weights")
    if not isinstance(weights, Mapping):
        weights = {}
    return Scored(
        where=where,
        prompt=prompt_text(fields, names, before),
        response=response,
        reference=None if truth is None else str(truth),
        columns=columns,
        verdicts=verdicts,
        weights=weights,
    )


def _verdict(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    scores = fields.get("scores")
    if isinstance(scores, Mapping):
        return scores[name]
    verdict: dict[str, Any] = {}
    for part in _PARTS:
        for separator in _SEPARATORS:
            if f"{part}{separator}{name}" in fields:
                verdict[part] = fields[f"{part}{separator}{name}"]
    return verdict


def _value(item: Scored, by: str) -> Any:
    if by not in item.columns:
        raise ConfigError(
            f"--by {by}: no column of that name{did_you_mean(by, list(item.columns))}"
        )
    value = item.columns[by]
    return value if isinstance(value, int | float) and value == value else None


def _block(title: str, text: str, full: bool) -> list[str]:
    # Control characters would steer the terminal.
    unprintable = {ord(char): "\ufffd" for char in set(text) - {"\n"} if not char.isprintable()}
    visible = text.translate(unprintable)
    if not full and len(visible) > _SHORT:
        half = _SHORT // 2
        visible = (
            f"{visible[:half]}\n... ({len(visible) - 2 * half} characters; --full displays"
            f" them)\n{visible[-half:]}"
        )
    return [f"{title}:", textwrap.indent(visible, "  ")]

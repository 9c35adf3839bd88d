"""The columns that `rmrl score` adds to the rows.

    reward            the combined reward; null where the row has none (see reward.on_missing)
    score_<name>      component <name>'s verdict before transform and weight; null without one
    status_<name>     "ok", or why the verdict is missing
    detail_<name>     the same in words
    extra_<name>      further columns that the reward returned, as JSON text; null without any
    rendered_<name>   with columns=[rendered]: a judge's input; "" without one
    raw_<name>        with columns=[raw]: a judge's output; "" without one
    read_<name>       with columns=[read]: what the reward read in the response, where it is another
                      text than that; else ""
    turns_<name>      with columns=[turns]: a list with the score of each assistant turn as JSON
                      text, of a reward with `per: turn`; "[]" for others
    steps_<name>      with columns=[steps]: a list of [end, score] per step as JSON text, the end
                      in characters; "[]" for a reward without steps
    rmrl_columns      in a file whose rows have values under other names (data.columns): these names
                      as JSON text

In rows with several responses each column but the last is a list. The columns do not depend on the
scores, so that parquet's fixed schema never aborts a job. An input column with such a name is
replaced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from rmrl.data.responses import AnsweredRow
from rmrl.data.surrogates import escaped
from rmrl.data.table_writer import score_types
from rmrl.rewards.session.turns import TURNS
from rmrl.types import RewardBatch, ScoreResult

FURTHER: Mapping[str, Callable[[ScoreResult], str | None]] = {
    "rendered": lambda result: result.rendered,
    "raw": lambda result: result.raw_text,
    "read": lambda result: result.read,
    "turns": lambda result: json.dumps(result.extra.get(TURNS, [])),
    "steps": lambda result: json.dumps(
        [[step.end, step.value] for step in result.steps if step.turn is None]
    ),
}
"""Names that `columns` accepts, each with its text, or None where the response has none."""

_JSON = json.JSONEncoder(ensure_ascii=False, default=str)

ROW = "row"
SEVERAL = "several"
"""Further columns of `score_table`."""


def score_table(
    batch: Sequence[AnsweredRow], rewards: RewardBatch, *, further: Sequence[str] = ()
) -> pa.Table:
    """Return the added columns as lists with a value per response, each row's number (`row`), and
    whether it holds several responses (`several`)."""
    columns = _by_response(rewards, further)
    arrays = {
        ROW: pa.array([row.number for row in batch], type=pa.int64()),
        SEVERAL: pa.array([row.several for row in batch], type=pa.bool_()),
    }
    counts = [len(row.texts) for row in batch]
    ends = pa.array(np.cumsum([0, *counts], dtype=np.int32))
    types = score_types(rewards.scores.names, several=False, further=further)
    for name, type_ in types.items():
        arrays[name] = pa.ListArray.from_arrays(ends, pa.array(columns[name], type=type_))
    return pa.table(arrays)


def score_columns(
    batch: Sequence[AnsweredRow], rewards: RewardBatch, *, further: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """Return the added columns, one list per batch row with a value per response."""
    columns = _by_response(rewards, further)
    return {name: _by_row(values, batch) for name, values in columns.items()}


def _by_response(rewards: RewardBatch, further: Sequence[str]) -> dict[str, list[Any]]:
    rewards_B: list[float] = rewards.rewards_B.tolist()
    flat: dict[str, list[Any]] = {
        "reward": [None if math.isnan(reward) else reward for reward in rewards_B]
    }
    for name, results in zip(rewards.scores.names, rewards.scores.results, strict=True):
        details = map(attrgetter("detail"), results)
        flat[f"score_{name}"] = list(map(attrgetter("value"), results))
        flat[f"status_{name}"] = list(map(attrgetter("status"), results))
        flat[f"detail_{name}"] = list(map(escaped, details))
        flat[f"extra_{name}"] = list(map(_extra, results))
        for column in further:
            texts = map(FURTHER[column], results)
            flat[f"{column}_{name}"] = [None if text is None else escaped(text) for text in texts]
    return flat


def transformed_columns(
    batch: Sequence[AnsweredRow], rewards: RewardBatch
) -> dict[str, list[list[float | None]]]:
    """Return each component's scores after its transforms and before its weight, one list per batch
    row; None without a verdict and where a gate is closed."""
    columns: dict[str, list[list[float | None]]] = {}
    for c, name in enumerate(rewards.scores.names):
        values: list[float | None] = [result.value for result in rewards.scores.results[c]]
        if rewards.columns_BC is not None:
            column = rewards.columns_BC[:, c].tolist()
            values = [None if math.isnan(value) else value for value in column]
        columns[name] = _by_row(values, batch)
    return columns


def _by_row(values: Sequence[Any], batch: Sequence[AnsweredRow]) -> list[list[Any]]:
    """Cut a value per response into a list per row."""
    remaining = iter(values)
    return [list(islice(remaining, len(row.texts))) for row in batch]


def _extra(result: ScoreResult) -> str | None:
    if not result.extra:
        return None
    return escaped(_JSON.encode(dict(result.extra)))

"""The columns that `rmrl score` adds to the rows.

    reward            the combined reward; null where the row has none (see reward.on_missing)
    score_<name>      component <name>'s verdict before transform and weight; null where there is
      none
    status_<name>     "ok", or why there is no verdict
    detail_<name>     the same in words
    extra_<name>      further columns the reward returned, as JSON text; null where it returned none
    rendered_<name>   with columns=[rendered]: what a judge read; "" where it read nothing
    raw_<name>        with columns=[raw]: what a judge wrote; "" where it wrote nothing

In rows that hold a list of responses each of them is a list. The columns are the same whatever the
scores are, so that parquet's fixed schema never breaks off a job; a column of the input that has
one of these names is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rmrl.data.responses import AnsweredRow
from rmrl.types import RewardBatch, ScoreResult

FURTHER: Mapping[str, Callable[[ScoreResult], str]] = {
    "rendered": lambda result: result.rendered,
    "raw": lambda result: result.raw_text,
}
"""What `columns` may name."""


def score_columns(
    batch: Sequence[AnsweredRow], rewards: RewardBatch, *, further: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """The added columns, one list per row of the batch with a value per response."""
    flat: dict[str, list[Any]] = {
        "reward": [None if reward != reward else float(reward) for reward in rewards.rewards_B]
    }
    for name, results in zip(rewards.scores.names, rewards.scores.results, strict=True):
        flat[f"score_{name}"] = [r.value for r in results]
        flat[f"status_{name}"] = [r.status for r in results]
        flat[f"detail_{name}"] = [_storable(r.detail) for r in results]
        flat[f"extra_{name}"] = [_extra(r) for r in results]
        for column in further:
            flat[f"{column}_{name}"] = [_storable(FURTHER[column](r)) for r in results]
    return {name: _by_row(batch, values) for name, values in flat.items()}


def _by_row(batch: Sequence[AnsweredRow], values: Sequence[Any]) -> list[Any]:
    rest = iter(values)
    return [[next(rest) for _ in row.texts] for row in batch]


def _extra(result: ScoreResult) -> str | None:
    return (
        _storable(json.dumps(dict(result.extra), ensure_ascii=False, default=str))
        if result.extra
        else None
    )


def _storable(text: str) -> str:
    """A lone surrogate cannot be UTF-8: it becomes its escape, such as \\ud83d."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")

"""Small specs, scores and rows for the tests of combining."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.rewards.combine import combine, weights_matrix
from rmrl.rewards.combine.schedules import Schedule
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.specs.spec import OnMissing, RewardSpec
from rmrl.rewards.transforms import Chain, chain_of
from rmrl.types import RewardBatch, ScoreResult, Scores, Step

MISSING = ScoreResult(value=None, status="timeout", detail="after 10 s")
SKIPPED = ScoreResult(value=None, status="skipped", detail="gate closed")


def spec(
    name: str,
    weight: float = 1.0,
    policy: str = "mask",
    *,
    op: str = "add",
    value: float | None = None,
    tokens: bool = False,
    **more: Any,
) -> RewardSpec:
    options = SimpleNamespace(to_tokens=True) if tokens else None
    missing = OnMissing(policy=policy, value=value)
    return RewardSpec(
        name=name,
        kind="rule",
        weight=weight,
        combine_op=op,
        on_missing=missing,
        options=options,
        **more,
    )


def result(value: float | str | ScoreResult | None) -> ScoreResult:
    """A number, None (timed out), "skipped", or a result as it is."""
    if isinstance(value, ScoreResult):
        return value
    if value == "skipped":
        return SKIPPED
    return MISSING if value is None else ScoreResult(value=float(value))


def process(value: float, *steps: tuple[int, float]) -> ScoreResult:
    return ScoreResult(value=value, steps=tuple(Step(end, part) for end, part in steps))


def rows(
    count: int,
    *,
    groups: Sequence[int] | None = None,
    sources: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
) -> Rows:
    return Rows(
        group_ids_B=np.asarray(groups if groups is not None else [0] * count, dtype=np.int64),
        lengths_B=np.asarray(lengths if lengths is not None else [10] * count, dtype=np.int64),
        truncated_B=np.zeros(count, dtype=bool),
        sources=tuple(sources if sources is not None else [""] * count),
    )


def combined(
    specs: list[RewardSpec],
    *columns: Sequence[Any],
    how: str = "weighted_sum",
    about: Rows | None = None,
    transforms: Sequence[Chain] | None = None,
    schedules: dict[str, Schedule] | None = None,
    step: float = 0,
    **settings: Any,
) -> RewardBatch:
    """Columns hold what `result` takes, one per response."""
    scores = Scores(
        names=tuple(s.name for s in specs),
        results=tuple(tuple(result(v) for v in column) for column in columns),
    )
    about = about if about is not None else rows(len(columns[0]))
    return combine(
        scores,
        specs,
        about,
        settings=RewardConfig(combine=how, **settings),
        weights_BC=weights_matrix(specs, about, step=step, schedules=schedules or {}),
        transforms=(
            transforms
            if transforms is not None
            else [chain_of(s.transforms, s.name) for s in specs]
        ),
    )


def rewards(batch: RewardBatch) -> list[float | None]:
    assert [math.isnan(r) for r in batch.rewards_B] == [not keep for keep in batch.keep_B]
    return [None if math.isnan(r) else round(float(r), 9) for r in batch.rewards_B]


def rewards_of(specs: list[RewardSpec], *columns: Sequence[Any], **more: Any) -> list[float | None]:
    """Combined rewards of rows; the arguments are those of `combined`."""
    return rewards(combined(specs, *columns, **more))

"""Sessions that are combined with one call have the rewards they would have by themselves."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from rmrl.errors import RewardError
from rmrl.rewards.session.joint import Joint
from rmrl.rewards.specs.spec import RewardSpec, SourceWeights
from rmrl.types import RewardBatch, ScoreResult
from tests.rewards.combine import parts

SPECS = [
    parts.spec("a", 0.5),
    parts.spec("b", transforms=({"kind": "standardize", "by": "group"},)),
    parts.spec("c", 2.0, gates=("a",), sources=SourceWeights({"x": 2.0}, None)),
]


def drawn(draw: random.Random) -> tuple[list[list[ScoreResult]], Any]:
    """A session's results, with missing and skipped verdicts, and its rows."""
    count = draw.randint(1, 6)
    columns: list[list[ScoreResult]] = []
    for _ in SPECS:
        values = draw.choices([0.0, 1.0, 2.5, None, "skipped"], k=count)
        columns.append(list(map(parts.result, values)))
    rows = parts.rows(
        count,
        groups=[draw.randint(0, 2) for _ in range(count)],
        sources=draw.choices(["x", "y"], k=count),
        lengths=[draw.randint(1, 9) for _ in range(count)],
    )
    return columns, rows


class Counted:
    """Combines a batch, and counts."""

    def __init__(self, specs: list[RewardSpec], **settings: Any) -> None:
        self.sizes: list[int] = []
        self._specs = specs
        self._settings = settings

    def __call__(self, results: list[list[ScoreResult]], rows: Any) -> RewardBatch:
        self.sizes.append(len(rows))
        return parts.combined(self._specs, *results, about=rows, **self._settings)


def same(first: RewardBatch, second: RewardBatch) -> None:
    assert first.scores == second.scores
    for field in dataclasses.fields(RewardBatch):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if isinstance(one, np.ndarray) and field.name != "weights_C":
            np.testing.assert_array_equal(one, other, err_msg=field.name)
    assert (first.steps, first.teachers) == (second.steps, second.teachers)


@pytest.mark.parametrize("how", ["weighted_sum", "product", "min", "soft_min", "lexicographic"])
async def test_rewards_are_those_of_each_session_alone(how: str) -> None:
    draw = random.Random(0)
    sessions = [drawn(draw) for _ in range(40)]
    together = Counted(SPECS, how=how)
    joint = Joint(together)
    batches = await asyncio.gather(*(joint.combine(*session) for session in sessions))
    assert together.sizes == [sum(len(rows) for _, rows in sessions)]
    for batch, (results, rows) in zip(batches, sessions, strict=True):
        same(batch, Counted(SPECS, how=how)(results, rows))


async def test_an_error_is_that_of_its_session_and_names_its_rows() -> None:
    joint = Joint(Counted([parts.spec("a", policy="fail")]))
    values: list[list[Any]] = [[1.0, 2.0], [None, 3.0], [4.0]]
    calls = [joint.combine([list(map(parts.result, v))], parts.rows(len(v))) for v in values]
    first, failed, last = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, RewardBatch)
    assert isinstance(last, RewardBatch)
    assert (first.rewards_B.tolist(), last.rewards_B.tolist()) == ([1.0, 2.0], [4.0])
    with pytest.raises(RewardError, match="no verdict for 1 of 2 responses"):
        raise failed  # type: ignore[misc]


async def test_a_session_that_is_cancelled_is_left_out() -> None:
    together = Counted(SPECS[:1])
    joint = Joint(together)
    kept, ended = (
        asyncio.create_task(joint.combine([[parts.result(1.0)]], parts.rows(1))) for _ in range(2)
    )
    await asyncio.sleep(0)  # both wait
    ended.cancel()
    batch = await kept
    assert batch.rewards_B.tolist() == [0.5]
    assert together.sizes == [1]
    with pytest.raises(asyncio.CancelledError):
        await ended


async def test_sessions_of_another_turn_are_another_batch() -> None:
    together = Counted(SPECS[:1])
    joint = Joint(together)
    for value in (2.0, 4.0):
        batch = await joint.combine([[parts.result(value)]], parts.rows(1))
        assert batch.rewards_B.tolist() == [value / 2]
    assert together.sizes == [1, 1]

"""Held-out rows go to the processes in parts, and come back in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmrl.reward_training.labelled_batch import LabelledBatch
from rmrl.reward_training.process_group import ProcessGroup
from tests.reward_training.pairs import random_items


class FakeProcess:
    """Scores a row by the sum of its tokens."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        """Rows in each call."""

    async def call(self, method: str, name: str, batch: LabelledBatch, **_: Any) -> Any:
        assert (method, name) == ("call", "scores")
        self.rows.append(len(batch))
        return [np.asarray([[row.sum()]], np.float32) for row in batch.tokens.rows()]


async def test_many_rows_are_scored_in_parts() -> None:
    items = random_items(1100, seed=1)
    processes: Any = [FakeProcess(), FakeProcess()]
    outputs = await ProcessGroup(processes=processes, timeout_s=60.0).scores(items)
    assert [[float(row[0, 0]) for row in rows] for rows in outputs] == [
        [float(row.sum()) for row in item.tokens] for item in items
    ]
    # 512, 512 and 76 items with two rows each, half of them in each process.
    assert [process.rows for process in processes] == [[512, 512, 76], [512, 512, 76]]


async def test_no_rows_are_no_call() -> None:
    process = FakeProcess()
    processes: Any = [process]
    assert await ProcessGroup(processes=processes, timeout_s=60.0).scores([]) == []
    assert process.rows == []

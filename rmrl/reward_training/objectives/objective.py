"""The shape of an objective: labels of an example -> numbers, and the loss of the outputs.

Everything is an un-normalised sum. The engine divides by the weight of the whole mini-batch over
all processes, so results do not depend on how items were distributed or cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rmrl.config.schema import RewardLossConfig
from rmrl.reward_training.example import Example
from rmrl.reward_training.labelled_batch import LabelledBatch

if TYPE_CHECKING:
    import torch

Targets = tuple[tuple[float, ...], ...]
"""Numbers that each response of an example is trained to."""


class Objective:
    """One objective; its class extends this one."""

    forms: ClassVar[tuple[str, ...]]
    """Forms of rows that it learns from; names of the table FORMS."""
    compares: ClassVar[bool] = True
    """Its held-out figures are those of comparisons."""

    def __init__(self, settings: RewardLossConfig) -> None:
        self._settings = settings

    def targets(self, example: Example) -> Targets:
        """Return the numbers of each response."""
        raise NotImplementedError

    def weight(self, batch: LabelledBatch) -> float:
        """Return the divisor's share: the number of items that have a loss."""
        return float(len(np.unique(batch.items_R)))

    def loss(
        self, batch: LabelledBatch, outputs_Nn: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the sum of the items' losses, and sums of metrics over items."""
        raise NotImplementedError


def pairs_by_rank(batch: LabelledBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of the better and the worse response of every pair within an item, and the
    pair's weight: 1 over the pairs of its item. The first target of a row is its rank."""
    ranks_R = np.asarray([row[0] for row in batch.targets.rows()])
    better: list[int] = []
    worse: list[int] = []
    weights: list[float] = []
    for rows in rows_of_items(batch):
        pairs = [pair for pair in combinations(rows, 2) if ranks_R[pair[0]] != ranks_R[pair[1]]]
        for pair in pairs:
            first, second = sorted(pair, key=lambda row: ranks_R[row])
            better.append(first)
            worse.append(second)
            weights.append(1 / len(pairs))
    return np.asarray(better, np.int64), np.asarray(worse, np.int64), np.asarray(weights)


def rows_of_items(batch: LabelledBatch) -> Iterator[list[int]]:
    """Yield the rows of each item."""
    rows: dict[int, list[int]] = {}
    for row, item in enumerate(batch.items_R.tolist()):
        rows.setdefault(item, []).append(row)
    yield from rows.values()

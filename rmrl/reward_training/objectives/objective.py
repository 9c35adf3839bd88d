"""The shape of an objective: labels of an example -> numbers, and the loss of the outputs.

Everything is an un-normalised sum. The engine divides by the weight of the whole mini-batch over
all processes, so results do not depend on how items were distributed or cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rmrl.config.schema import RewardLossConfig
from rmrl.evaluation.eval_tables import Rows
from rmrl.reward_training.example import Example
from rmrl.reward_training.held_out import full_report, held_out_table, quick_figures
from rmrl.reward_training.labelled_batch import LabelledBatch

if TYPE_CHECKING:
    import torch

Targets = tuple[tuple[float, ...], ...]
"""Numbers that each response of an example is trained to."""
Outputs = Sequence[Sequence[Sequence[float]]]
"""Outputs of the head, one list for each response of each held-out row."""


class Objective:
    """One objective; its class extends this one."""

    forms: ClassVar[tuple[str, ...]]
    """Forms of rows that it learns from; names of the table FORMS."""
    best_by: ClassVar[str] = "accuracy"
    """Held-out figure that the best weights are chosen by, where the settings name none."""

    def __init__(self, settings: RewardLossConfig, outputs: tuple[str, ...] = ("score",)) -> None:
        """`outputs`: names of the head's outputs, as `outputs_of` has found them."""
        self._settings = settings
        self.outputs = outputs

    @classmethod
    def outputs_of(cls, examples: Sequence[Example], settings: RewardLossConfig) -> tuple[str, ...]:
        """Return the names of the head's outputs for these training rows."""
        del examples, settings
        return ("score",)

    @property
    def score_weights(self) -> dict[str, float]:
        """Weights of the outputs in the score of a response; {}: the only output is the score."""
        return {}

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

    def quick(self, examples: Sequence[Example], outputs: Outputs) -> dict[str, float]:
        """Return the figures of one validation."""
        return quick_figures(examples, _scores(outputs))

    def report(
        self,
        train: Sequence[Example],
        held_out: Sequence[Example],
        outputs: Mapping[str, Outputs],
        *,
        seed: int,
    ) -> dict[str, Any]:
        """Return the figures of each judge (name -> outputs), and of the baselines."""
        scores = {name: _scores(each) for name, each in outputs.items()}
        return full_report(train, held_out, scores, seed=seed)

    def table(self, judges: Mapping[str, Any]) -> Rows:
        """Return the figures of `report` for people."""
        return held_out_table(judges)


def _scores(outputs: Outputs) -> list[list[float]]:
    """The first output of each response."""
    return [[values[0] for values in responses] for responses in outputs]


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

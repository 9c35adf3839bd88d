"""What an objective does: an example's labels -> numbers, and outputs -> a loss.

Everything is an un-normalised sum. The engine divides by the whole mini-batch's weight over all
processes, so results do not depend on how items were distributed or cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rmrl.config.schema import RewardLossConfig, RewardTrainingConfig
from rmrl.evaluation.eval_tables import Rows
from rmrl.reward_training.example import Example
from rmrl.reward_training.held_out import full_report, held_out_table, quick_figures
from rmrl.reward_training.labelled_batch import LabelledBatch
from rmrl.reward_training.readings.last_token import LastToken
from rmrl.reward_training.readings.reading import Reading

if TYPE_CHECKING:
    import torch

Targets = tuple[tuple[float, ...], ...]
"""Numbers that each response of an example is trained to."""
Outputs = Sequence[Sequence[Sequence[float]]]
"""The head's outputs, per held-out row one list for each response."""


class Objective:
    """One objective. Its class extends this one."""

    forms: ClassVar[tuple[str, ...]]
    """Forms that it learns from, by their names in FORMS."""
    reads: ClassVar[type[Reading]] = LastToken
    """Where its outputs are read."""
    loss_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of `loss` that it reads."""
    chosen_by: ClassVar[tuple[str, ...]] = ("accuracy", "length_matched", "loss")
    """Held-out figures, as `quick` returns them, that the best weights may be chosen by: by the
    first where the settings name none."""

    def __init__(self, settings: RewardLossConfig, outputs: tuple[str, ...] = ("score",)) -> None:
        """`outputs`: names for the head's outputs, as `outputs_of` has found them."""
        self._settings = settings
        self.outputs = outputs

    @classmethod
    def problems(cls, config: RewardTrainingConfig) -> Iterator[str]:
        """Report what the settings ask for and the objective does not have, one sentence each."""
        if config.seeds > 1 and config.merge == "ensemble" and not cls.reads.ensembles:
            yield (
                f"seeds={config.seeds}: adapters of objective={config.objective} make no ensemble:"
                " make one model of all seeds with merge=average"
            )
        default = RewardLossConfig()
        for name in (entry.name for entry in fields(default)):
            if name not in cls.loss_keys and getattr(config.loss, name) != getattr(default, name):
                yield f"loss.{name}: not read by objective={config.objective}; leave it out"
        if config.data.question and "choice" not in cls.forms:
            yield f"data.question: not read by objective={config.objective}; leave it out"
        if config.trainer.best_by not in (None, *cls.chosen_by):
            yield (
                f"trainer.best_by={config.trainer.best_by}: objective={config.objective} has no"
                f" such held-out figure; give one of {', '.join(cls.chosen_by)}"
            )

    @classmethod
    def outputs_of(cls, examples: Sequence[Example], settings: RewardLossConfig) -> tuple[str, ...]:
        """Return names for the head's outputs, given the training rows."""
        del examples, settings
        return ("score",)

    @property
    def reading(self) -> Reading:
        """How outputs are read, and how they rate a response."""
        return self.reads(self.outputs, self.score_weights)

    @property
    def score_weights(self) -> dict[str, float]:
        """The outputs' weights in a response's score. {}: the only output is the score."""
        return {}

    def targets(self, example: Example) -> Targets:
        """Return each response's numbers."""
        raise NotImplementedError

    def weight(self, batch: LabelledBatch) -> float:
        """Return the share's part in the divisor: how many items have a loss."""
        return float(len(np.unique(batch.items_R)))

    def loss(
        self, batch: LabelledBatch, outputs_Nn: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the items' losses and metrics, summed."""
        raise NotImplementedError

    def quick(self, examples: Sequence[Example], outputs: Outputs) -> dict[str, float]:
        """Return one validation's figures."""
        return quick_figures(examples, _scores(outputs))

    def report(
        self,
        train: Sequence[Example],
        held_out: Sequence[Example],
        outputs: Mapping[str, Outputs],
        *,
        seed: int,
    ) -> dict[str, Any]:
        """Return figures for each judge (name -> outputs), and for the baselines."""
        scores = {name: _scores(each) for name, each in outputs.items()}
        return full_report(train, held_out, scores, seed=seed)

    def table(self, judges: Mapping[str, Any]) -> Rows:
        """Return `report` as a table for people."""
        return held_out_table(judges)


def _scores(outputs: Outputs) -> list[list[float]]:
    """Each response's first output."""
    return [[values[0] for values in responses] for responses in outputs]


def pairs_by_rank(batch: LabelledBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the better and the worse row for every pair within an item, and the pair's weight: 1
    over its item's pairs. A row's first target is its rank."""
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
    """Yield each item's rows."""
    rows: dict[int, list[int]] = {}
    for row, item in enumerate(batch.items_R.tolist()):
        rows.setdefault(item, []).append(row)
    yield from rows.values()

"""Losses beside numbers from their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rmrl.config.schema import RewardLossConfig
from rmrl.reward_training.labelled_batch import batch_of
from rmrl.reward_training.objectives.bradley_terry import BradleyTerry
from tests.reward_training.pairs import example, random_items


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, -math.log(sigmoid(2.0 - 0.5 - 0.25))),
        ({"center": 0.1}, -math.log(sigmoid(1.25)) + 0.1 * 2.5**2),
        ({"label_smoothing": 0.2}, -0.8 * math.log(sigmoid(1.25)) - 0.2 * math.log(sigmoid(-1.25))),
    ],
)
def test_bradley_terry(settings: dict[str, float], expected: float) -> None:
    (item,) = random_items(1, seed=1)
    objective = BradleyTerry(RewardLossConfig(**settings))
    targets = objective.targets(example(margin=0.25))
    assert targets == ((0.0, 0.25), (1.0, 0.25))
    batch = batch_of([type(item)(**{**_fields(item), "targets": targets})])
    loss, sums = objective.loss(batch, torch.tensor([[2.0], [0.5]]))
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert (sums["accuracy"].item(), sums["margin"].item()) == (1.0, 1.5)
    assert sums["score"].item() == pytest.approx(1.25)
    assert objective.weight(batch) == 1


def test_the_order_of_the_rows_is_told_by_their_ranks() -> None:
    (item,) = random_items(1, seed=1)
    swapped = type(item)(**{**_fields(item), "targets": ((1.0, 0.0), (0.0, 0.0))})
    _, sums = BradleyTerry(RewardLossConfig()).loss(
        batch_of([swapped]), torch.tensor([[2.0], [0.5]])
    )
    assert (sums["accuracy"].item(), sums["margin"].item()) == (0.0, -1.5)


def test_a_loss_is_a_sum_over_items() -> None:
    items = random_items(5, seed=3)
    outputs = torch.randn(10, 1, generator=torch.Generator().manual_seed(0))
    objective = BradleyTerry(RewardLossConfig(center=0.1))
    together, _ = objective.loss(batch_of(items), outputs)
    apart = [
        objective.loss(batch_of([item]), outputs[2 * i : 2 * i + 2])[0]
        for i, item in enumerate(items)
    ]
    assert together.item() == pytest.approx(sum(apart).item(), abs=1e-5)


def test_rows_of_a_batch_keep_their_streams_when_selected() -> None:
    batch = batch_of(random_items(3, seed=4))
    assert batch.items_R.tolist() == [0, 0, 1, 1, 2, 2]
    assert batch.reads_R.tolist() == [1] * 6
    assert (batch.response_mask.values == 1).all()
    last = batch.select(np.asarray([4, 5]))
    assert type(last) is type(batch)
    assert last.items_R.tolist() == [2, 2]
    assert last.targets.rows()[1][0] == 1


def _fields(item: object) -> dict[str, object]:
    return {
        name: getattr(item, name) for name in ("number", "tokens", "shared", "reads", "targets")
    }

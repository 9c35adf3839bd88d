"""Losses beside numbers from their formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rmrl.config.schema import RewardLossConfig
from rmrl.reward_training.example import Example
from rmrl.reward_training.labelled_batch import Item, batch_of
from rmrl.reward_training.objectives.attributes import AttributeRegression
from rmrl.reward_training.objectives.bradley_terry import BradleyTerry
from rmrl.reward_training.objectives.objective import Objective
from rmrl.reward_training.objectives.plackett_luce import PlackettLuce
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
def test_bradley_terry(settings: dict[str, Any], expected: float) -> None:
    (item,) = random_items(1, seed=1)
    objective = BradleyTerry(RewardLossConfig(**settings))
    targets = objective.targets(example(margin=0.25))
    assert targets == ((0.0, 0.25), (1.0, 0.25))
    batch = batch_of([replace(item, targets=targets)])
    loss, sums = objective.loss(batch, torch.tensor([[2.0], [0.5]]))
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert (sums["accuracy"].item(), sums["margin"].item()) == (1.0, 1.5)
    assert sums["score"].item() == pytest.approx(1.25)
    assert objective.weight(batch) == 1


def test_the_order_of_the_rows_is_told_by_their_ranks() -> None:
    (item,) = random_items(1, seed=1)
    swapped = replace(item, targets=((1.0, 0.0), (0.0, 0.0)))
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
    assert together.item() == pytest.approx(torch.stack(apart).sum().item(), abs=1e-5)


def scored(objective: Objective, ranks: tuple[int, ...], scores: list[float]) -> float:
    """The loss of one item with these ranks and scores."""
    row = random_items(1, seed=1)[0]
    item = Item(
        number=0,
        tokens=row.tokens[:1] * len(ranks),
        shared=row.shared,
        reads=row.reads[:1] * len(ranks),
        targets=objective.targets(example(ranks=ranks)),
    )
    batch = batch_of([item])
    loss, _ = objective.loss(batch, torch.tensor(scores)[:, None])
    return loss.item() if objective.weight(batch) else math.nan


def test_plackett_luce_is_the_probability_of_an_order() -> None:
    a, b, c = math.exp(1.0), math.exp(0.5), math.exp(-0.2)
    objective = PlackettLuce(RewardLossConfig())
    expected = -(math.log(a / (a + b + c)) + math.log(b / (b + c))) / 2
    assert scored(objective, (0, 1, 2), [1.0, 0.5, -0.2]) == pytest.approx(expected, abs=1e-6)
    tied = -(math.log(a / (a + b + c)) + math.log(b / (a + b + c))) / 2
    assert scored(objective, (0, 0, 1), [1.0, 0.5, -0.2]) == pytest.approx(tied, abs=1e-6)
    pair = -math.log(sigmoid(0.5))
    assert scored(objective, (0, 1), [1.0, 0.5]) == pytest.approx(pair, abs=1e-6)
    assert math.isnan(scored(objective, (0, 0), [1.0, 0.5]))


def test_ties_of_a_pair_by_davidson() -> None:
    a, b = math.exp(1.0), math.exp(0.5)
    tie = 0.7 * math.sqrt(a * b)
    objective = PlackettLuce(RewardLossConfig(tie_strength=0.7))
    for ranks, mass in (((0, 1), a), ((1, 0), b), ((0, 0), tie)):
        expected = -math.log(mass / (a + b + tie))
        assert scored(objective, ranks, [1.0, 0.5]) == pytest.approx(expected, abs=1e-6)


def test_a_list_counts_as_the_mean_over_its_pairs() -> None:
    objective = BradleyTerry(RewardLossConfig())
    expected = -(math.log(sigmoid(0.5)) + math.log(sigmoid(1.2)) + math.log(sigmoid(0.7))) / 3
    assert scored(objective, (0, 1, 2), [1.0, 0.5, -0.2]) == pytest.approx(expected, abs=1e-6)
    assert math.isnan(scored(objective, (0, 0), [1.0, 0.5]))


def test_rows_of_a_batch_keep_their_streams_when_selected() -> None:
    batch = batch_of(random_items(3, seed=4))
    assert batch.items_R.tolist() == [0, 0, 1, 1, 2, 2]
    assert batch.reads_R.tolist() == [1] * 6
    assert (batch.response_mask.values == 1).all()
    last = batch.select(np.asarray([4, 5]))
    assert type(last) is type(batch)
    assert last.items_R.tolist() == [2, 2]
    assert last.targets.rows()[1][0] == 1


def rated(**attributes: float) -> Example:
    return Example(place="row", prompt="Hi", responses=("good",), attributes=attributes)


@pytest.mark.parametrize(
    ("head", "outputs", "expected"),
    [
        ("point", [3.0, 1.0], 1.0),
        ("variance", [3.0, 1.0, math.log(2), 5.0], 0.5 * (1 / 2 + math.log(2))),
        ("quantiles", [3.0, 1.0, 2.0, 0.0, 3.5, 0.0], 0.5 * 1 + 0.1 * 2 + 0.9 * 0.5),
    ],
)
def test_an_attribute_that_a_row_lacks_has_no_loss(
    head: str, outputs: list[float], expected: float
) -> None:
    settings = RewardLossConfig(head=head)
    rows = [rated(helpful=4.0), rated(verbose=1.0, helpful=2.0)]
    names = AttributeRegression.outputs_of(rows, settings)
    assert names[:2] == ("helpful", "verbose")
    objective = AttributeRegression(settings, names)
    assert objective.names == ("helpful", "verbose")
    assert objective.score_weights == {"helpful": 0.5, "verbose": 0.5}
    row = random_items(1, seed=1)[0]
    item = Item(
        number=0,
        tokens=row.tokens[:1],
        shared=row.shared,
        reads=row.reads[:1],
        targets=objective.targets(rows[0]),
    )
    batch = batch_of([item])
    assert objective.weight(batch) == 1
    loss, sums = objective.loss(batch, torch.tensor([outputs]))
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert sums["squared_error"].item() == pytest.approx(1.0)


def test_figures_of_attributes_stand_beside_a_constant() -> None:
    rows = [rated(helpful=float(i % 4), verbose=1.0) for i in range(12)]
    objective = AttributeRegression(RewardLossConfig(), ("helpful", "verbose"))
    right = [[[each.attributes["helpful"], 1.5]] for each in rows]
    figures = objective.quick(rows, right)
    assert set(objective.chosen_by) <= figures.keys()
    assert figures["helpful/squared_error"] == 0
    assert figures["verbose/squared_error"] == 0.25
    assert figures["loss"] == 0.125
    judges = objective.report(rows, rows, {"trained": right}, seed=1)
    assert judges["trained"]["helpful"]["pearson"] == pytest.approx(1)
    assert judges["mean of the labels"]["helpful"]["squared_error"] == pytest.approx(1.25)
    assert judges["length"]["helpful"]["squared_error"] is None
    assert [row[:2] for row in objective.table(judges)][1] == ["trained", "helpful"]

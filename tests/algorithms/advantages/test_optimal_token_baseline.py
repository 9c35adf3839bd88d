"""The optimal token baseline against numbers computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from rmrl.algorithms.advantages.optimal_token_baseline import optimal_token_baseline
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.errors import ConfigError
from rmrl.types import AdvantageInputs, Advantages

ENERGIES = [[0.5, 0.5], [0.5, 1.5, 1.0]]
"""Spent so far: 0.5, 1.0 and 0.5, 2.0, 3.0."""


def padded(rows: list[list[float]], fill: float = math.nan) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])


def inputs(
    rewards: list[float], energies: list[list[float]], groups: list[int] | None = None, **extra: Any
) -> AdvantageInputs:
    """A response's tokens are as many as its energies."""
    return AdvantageInputs(
        rewards_B=torch.tensor(rewards),
        group_ids_B=torch.tensor(groups or [0] * len(rewards)),
        response_mask_BT=padded([[1.0] * len(row) for row in energies], fill=0.0),
        energies_BT=padded(energies),
        **extra,
    )


def estimated(given: AdvantageInputs, **settings: Any) -> Advantages:
    return optimal_token_baseline(given, settings=AlgorithmConfig(**settings))


def rows_of(given: AdvantageInputs, **settings: Any) -> list[Any]:
    """Advantages inside the mask; all others are exactly 0."""
    advantages_BT = estimated(given, **settings).advantages_BT
    counts_BT = given.response_mask_BT > 0
    assert (advantages_BT[~counts_BT] == 0).all()
    return [
        pytest.approx(row[counts].tolist(), abs=1e-6)
        for row, counts in zip(advantages_BT, counts_BT, strict=True)
    ]


def test_each_token_is_compared_by_the_energy_spent_up_to_it():
    # token 1: (0.5 * 1 + 0.5 * 0) / 1.0 = 1/2; token 2: (1.0 * 1 + 2.0 * 0) / 3.0 = 1/3;
    # token 3: one response is left, which keeps 1/3
    assert rows_of(inputs([1.0, 0.0], ENERGIES)) == [[1 / 2, 2 / 3], [-1 / 2, -1 / 3, -1 / 3]]


def test_the_baseline_is_the_one_of_least_weighted_squares():
    """The derivative of sum W (G - b)^2 is 0 at every token that several responses have."""
    energies = [[0.3, 0.7, 1.1, 0.2], [1.9, 0.1, 0.4, 0.6], [0.8, 0.8, 0.8, 0.8]]
    found = estimated(inputs([0.2, -1.0, 3.0], energies)).advantages_BT
    weighted_T = (found * torch.tensor(energies).cumsum(dim=1)).sum(dim=0)
    assert weighted_T.tolist() == pytest.approx([0.0] * 4, abs=1e-5)


def test_a_constant_added_to_all_rewards_changes_nothing():
    plain = estimated(inputs([1.0, 0.0], ENERGIES)).advantages_BT
    moved = estimated(inputs([11.0, 10.0], ENERGIES)).advantages_BT
    torch.testing.assert_close(moved, plain)


def test_groups_do_not_mix():
    both = inputs([1.0, 5.0, 0.0, 5.5], [*ENERGIES[:1], [1.0], ENERGIES[1], [0.25]], [7, 2, 7, 2])
    # group 2: (1.0 * 5 + 0.25 * 5.5) / 1.25 = 5.1
    assert rows_of(both) == [[1 / 2, 2 / 3], [-0.1], [-1 / 2, -1 / 3, -1 / 3], [0.4]]


def test_token_rewards_stand_where_they_are_and_the_discount_is_gamma():
    # returns of the second response: -0.5, -0.5, 0
    penalty = torch.tensor([[0.0, 0.0, 0.0], [0.0, -0.5, 0.0]])
    given = inputs([1.0, 0.0], ENERGIES, token_rewards_BT=penalty)
    # baselines: 0.5 - 0.25 = 1/4; (1.0 - 2.0 * 0.5) / 3 = 0; 0
    assert rows_of(given) == [[3 / 4, 1.0], [-3 / 4, -1 / 2, 0.0]]
    # returns of the first one: 0.5, 1
    assert rows_of(inputs([1.0, 0.0], ENERGIES), gamma=0.5) == [
        [1 / 4, 2 / 3],
        [-1 / 4, -1 / 3, -1 / 3],
    ]


def test_a_weight_of_rollout_correction_enters_by_its_square():
    weights = torch.tensor([[1.0, 1.0, math.nan], [2.0, 0.0, 1.0]])
    # spent by the second response: 4 * 0.5 = 2, 2 + 0 = 2, so baselines 0.5 / 2.5 and 1 / 3
    given = inputs([1.0, 0.0], ENERGIES, rollout_weights_BT=weights)
    assert rows_of(given) == [[4 / 5, 2 / 3], [-1 / 5, -1 / 3, -1 / 3]]


def test_tokens_outside_the_mask_are_passed_over():
    """The second token of a response is compared with the second one of another, wherever they
    stand."""
    given = inputs([1.0, 0.0], [[0.5, math.nan, 0.5], [0.5, 1.5, 1.0]])
    holes = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    assert rows_of(replace(given, response_mask_BT=holes)) == [
        [1 / 2, 2 / 3],
        [-1 / 2, -1 / 3, -1 / 3],
    ]


def test_where_all_were_certain_the_baseline_is_the_mean():
    energies = [[0.0, 0.5], [0.0, 0.5], [0.0, 1.0]]
    # token 2: weights 0.5, 0.5, 1.0
    assert rows_of(inputs([1.0, 0.0, 0.0], energies)) == [
        [2 / 3, 3 / 4],
        [-1 / 3, -1 / 4],
        [-1 / 3, -1 / 4],
    ]


def test_one_that_was_certain_has_no_weight():
    assert rows_of(inputs([1.0, 0.0], [[0.0], [0.5]])) == [[1.0], [0.0]]


def test_what_has_nothing_to_be_compared_with_has_advantage_zero():
    """A group of one, one beside an empty response, and equal returns; also where the longest
    response is alone."""
    rewards = [3.0, 2.0, 1.0, 0.3, 0.3 + 2**-24]
    found = estimated(inputs(rewards, [[1.0], [1.0], [], [0.1], [1.7, 0.4]], [0, 1, 1, 2, 2]))
    assert (found.advantages_BT == 0).all()
    assert found.metrics["group/constant_fraction"] == pytest.approx(2 / 3)


def test_the_mean_energy_is_reported_as_it_is_without_weights():
    weights = torch.full((2, 3), 3.0)
    found = estimated(inputs([1.0, 0.0], ENERGIES, rollout_weights_BT=weights))
    assert found.metrics["otb/energy"] == pytest.approx(4.0 / 5)


def test_without_energies_it_says_where_they_come_from():
    with pytest.raises(ConfigError, match=r"needs the energy of each token.*bypass_mode=False"):
        estimated(replace(inputs([1.0, 0.0], ENERGIES), energies_BT=None))

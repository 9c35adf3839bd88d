"""On-policy distillation's advantages against numbers computed by hand."""

from __future__ import annotations

import pytest
import torch

from rmrl.algorithms.advantages.distill import distill
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs

MASK = [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]
TAUGHT = [[0.5, -2.0, 0.25], [-1.0, 0.0, 7.0]]
"""The last number stands outside the mask."""


def advantages(
    rewards: list[float], groups: list[int], taught: list[list[float]] | None, **settings: object
) -> list[list[float]]:
    inputs = AdvantageInputs(
        rewards_B=torch.tensor(rewards),
        group_ids_B=torch.tensor(groups),
        response_mask_BT=torch.tensor(MASK),
        token_rewards_BT=None if taught is None else torch.tensor(taught),
    )
    return distill(inputs, settings=AlgorithmConfig(**settings)).advantages_BT.tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize("groups", [[0, 0], [0, 1]])
def test_with_a_teacher_alone_each_token_has_its_own_reward(groups: list[int]):
    """No baseline, no whitening, nothing of later tokens, and no need for a group."""
    expected = [[0.5, -2.0, 0.25], [-1.0, 0.0, 0.0]]
    assert advantages([0.0, 0.0], groups, TAUGHT) == expected


def test_the_outcome_adds_its_group_advantage():
    """Rewards 1 and 3: mean 2, unbiased std sqrt(2), so -+ 1 / (sqrt(2) + 1e-6) = -+ 0.707106."""
    found = advantages([1.0, 3.0], [0, 0], TAUGHT)
    assert found[0] == pytest.approx([-0.207106, -2.707106, -0.457106], abs=1e-5)
    assert found[1] == pytest.approx([-0.292894, 0.707106, 0.0], abs=1e-5)


def test_the_outcomes_statistics_do_not_see_the_tokens():
    """Sums of token rewards, -1.25 and -1, would change the mean; Dr. GRPO's: 1 - 2 and 3 - 2."""
    found = advantages([1.0, 3.0], [0, 0], TAUGHT, norm_adv_by_std_in_grpo=False)
    assert found == [[-0.5, -3.0, -0.75], [0.0, 1.0, 0.0]]


def test_without_token_rewards_it_is_grpo():
    found = advantages([1.0, 3.0], [0, 0], None, norm_adv_by_std_in_grpo=False)
    assert found == [[-1.0, -1.0, -1.0], [1.0, 1.0, 0.0]]

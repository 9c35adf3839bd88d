"""REINFORCE++ and GAE: estimators that walk over the tokens."""

from __future__ import annotations

import pytest
import torch

from rmrl.algorithms.advantages.gae import gae, generalised_advantages
from rmrl.algorithms.advantages.reinforce_plus_plus import discounted_returns, reinforce_plus_plus
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.errors import ConfigError
from rmrl.types import AdvantageInputs

MASK_BT = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]])


def test_discounted_returns_pass_over_holes() -> None:
    rewards_BT = torch.tensor([[1.0, 0.0, 4.0], [1.0, 77.0, 4.0]])
    # row 0: 4; 0 + 2; 1 + 1.  row 1: 4; hole; 1 + 0.5 * 4
    assert discounted_returns(rewards_BT, MASK_BT, gamma=0.5).tolist() == [[2, 2, 4], [3, 0, 4]]


def test_reinforce_plus_plus_whitens_the_returns() -> None:
    inputs = AdvantageInputs(
        rewards_B=torch.tensor([1.0, 0.0]),
        group_ids_B=torch.tensor([0, 1]),
        response_mask_BT=torch.tensor([[1.0, 1.0], [1.0, 0.0]]),
        token_rewards_BT=torch.tensor([[0.0, 0.0], [-1.0, 5.0]]),
    )
    found_BT = reinforce_plus_plus(inputs, settings=AlgorithmConfig(gamma=0.5)).advantages_BT
    # returns 0.5, 1 and -1: mean 1/6, deviations 1/3 5/6 -7/6, variance (4 + 25 + 49) / 36 / 2 = 13
    # / 12
    expected_BT = torch.tensor([[1 / 3, 5 / 6], [-7 / 6, 0.0]]) / (13 / 12) ** 0.5
    torch.testing.assert_close(found_BT, expected_BT)


def test_reinforce_plus_plus_of_equal_rewards_is_zero() -> None:
    inputs = AdvantageInputs(
        rewards_B=torch.full((2,), 0.7), group_ids_B=torch.tensor([0, 0]), response_mask_BT=MASK_BT
    )
    assert reinforce_plus_plus(inputs, settings=AlgorithmConfig()).advantages_BT.abs().max() == 0


def test_generalised_advantages_by_hand() -> None:
    rewards_BT = torch.tensor([[0.0, 0.0, 1.0]])
    values_BT = torch.tensor([[0.5, 0.2, 0.4]])
    found_BT = generalised_advantages(rewards_BT, values_BT, torch.ones(1, 3), gamma=0.9, lam=0.5)
    # deltas: 0.18 - 0.5 = -0.32;  0.36 - 0.2 = 0.16;  1 - 0.4 = 0.6
    # a3 = 0.6;  a2 = 0.16 + 0.45 * 0.6 = 0.43;  a1 = -0.32 + 0.45 * 0.43 = -0.1265
    torch.testing.assert_close(found_BT, torch.tensor([[-0.1265, 0.43, 0.6]]))


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_generalised_advantages_skip_holes(lam: float) -> None:
    whole = generalised_advantages(
        torch.tensor([[0.0, 1.0]]), torch.tensor([[0.3, 0.6]]), torch.ones(1, 2), gamma=0.9, lam=lam
    )
    holed_mask_BT = torch.tensor([[1.0, 0.0, 1.0]])
    holed = generalised_advantages(
        torch.tensor([[0.0, 8.0, 1.0]]),
        torch.tensor([[0.3, 8.0, 0.6]]),
        holed_mask_BT,
        gamma=0.9,
        lam=lam,
    )
    assert holed[0, 1] == 0
    torch.testing.assert_close(holed[:, [0, 2]], whole)


def test_gae_returns_are_the_discounted_returns_when_lambda_is_1() -> None:
    inputs = AdvantageInputs(
        rewards_B=torch.tensor([1.0, -2.0]),
        group_ids_B=torch.tensor([0, 1]),
        response_mask_BT=MASK_BT,
        values_BT=torch.tensor([[0.1, 0.2, 0.3], [0.5, float("nan"), 0.7]]),
    )
    found = gae(inputs, settings=AlgorithmConfig(gamma=0.5))
    torch.testing.assert_close(
        found.returns_BT, torch.tensor([[0.25, 0.5, 1.0], [-1.0, 0.0, -2.0]])
    )
    counted = found.advantages_BT[MASK_BT > 0]
    assert counted.mean().item() == pytest.approx(0, abs=1e-6)
    assert counted.std().item() == pytest.approx(1, abs=1e-5)


def test_gae_reads_gamma_and_lambda() -> None:
    inputs = AdvantageInputs(
        rewards_B=torch.tensor([1.0]),
        group_ids_B=torch.tensor([0]),
        response_mask_BT=torch.ones(1, 3),
        values_BT=torch.tensor([[0.5, 0.2, 0.4]]),
    )
    found = gae(inputs, settings=AlgorithmConfig(gamma=0.9, lam=0.5))
    # advantages -0.1265 0.43 0.6 (by hand above) and the values
    torch.testing.assert_close(found.returns_BT, torch.tensor([[0.3735, 0.63, 1.0]]))
    # mean 0.30117; deviations -0.42767 0.12883 0.29883, squares 0.28880, variance 0.14440, root
    # 0.38000
    torch.testing.assert_close(
        found.advantages_BT, torch.tensor([[-1.12545, 0.33904, 0.78640]]), rtol=1e-4, atol=1e-4
    )


def test_gae_without_a_critic_says_what_to_use() -> None:
    inputs = AdvantageInputs(
        rewards_B=torch.ones(2), group_ids_B=torch.zeros(2), response_mask_BT=MASK_BT
    )
    with pytest.raises(ConfigError, match=r"critic\.enable=true.*use adv_estimator=grpo"):
        gae(inputs, settings=AlgorithmConfig())

"""Rewards on tokens and over sequences, and the KL penalty in reward."""

from __future__ import annotations

import math

import pytest
import torch

from rmrl.algorithms.rewards import (
    kl_token_rewards,
    refuse_token_rewards,
    sequence_rewards,
    spread_over_tokens,
    token_rewards,
)
from rmrl.errors import ConfigError
from rmrl.types import AdvantageInputs

MASK_BT = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
PENALTY_BT = torch.tensor(
    [[-0.1, -0.2, math.nan, 0.0], [-0.3, 99.0, -0.4, 0.0], [1.0, 1.0, 1.0, 1.0]]
)


def inputs(token_rewards_BT: torch.Tensor | None = None) -> AdvantageInputs:
    return AdvantageInputs(
        rewards_B=torch.tensor([1.0, 2.0, 3.0]),
        group_ids_B=torch.tensor([0, 0, 1]),
        response_mask_BT=MASK_BT,
        token_rewards_BT=token_rewards_BT,
    )


def test_reward_sits_on_the_last_counted_token() -> None:
    assert token_rewards(inputs()).tolist() == [[0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 0]]


def test_token_rewards_are_added_inside_the_mask_only() -> None:
    expected_BT = torch.tensor([[-0.1, 0.8, 0.0, 0.0], [-0.3, 0.0, 1.6, 0.0], [0.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(token_rewards(inputs(PENALTY_BT)), expected_BT)


def test_sequence_rewards_sum_the_token_rewards() -> None:
    assert sequence_rewards(inputs()).tolist() == [1, 2, 3]
    torch.testing.assert_close(sequence_rewards(inputs(PENALTY_BT)), torch.tensor([0.7, 1.3, 3.0]))


def test_spread() -> None:
    spread_BT = spread_over_tokens(
        torch.tensor([0.5, -1.5, 9.0], dtype=torch.float64), MASK_BT.long()
    )
    assert spread_BT.dtype == torch.float32
    assert spread_BT.tolist() == [[0.5, 0.5, 0, 0], [-1.5, 0, -1.5, 0], [0, 0, 0, 0]]


def test_zero_width_batch() -> None:
    empty = AdvantageInputs(
        rewards_B=torch.ones(2), group_ids_B=torch.zeros(2), response_mask_BT=torch.zeros(2, 0)
    )
    assert token_rewards(empty).shape == (2, 0)


def test_kl_penalty_and_its_mean() -> None:
    old_BT = torch.tensor(
        [[-1.0, -1.0, -math.inf, 0.0], [-2.0, 0.0, -1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    )
    ref_BT = torch.tensor(
        [[-1.5, -1.3, -math.inf, 0.0], [-1.9, 0.0, -1.5, 0.0], [9.0, 0.0, 0.0, 0.0]]
    )
    penalty_BT, mean_kl = kl_token_rewards(old_BT, ref_BT, MASK_BT, kind="kl", coefficient=0.1)
    torch.testing.assert_close(
        penalty_BT, -0.1 * torch.tensor([[0.5, 0.3, 0.0, 0.0], [-0.1, 0.0, 0.5, 0.0], [0.0] * 4])
    )
    assert mean_kl.item() == pytest.approx((0.8 / 2 + 0.4 / 2) / 2)  # the empty row is no response


def test_the_mean_of_one_response_of_one_token_is_its_kl() -> None:
    one = torch.ones(1, 1)
    _, mean_kl = kl_token_rewards(one, 0.25 * one, one, kind="kl", coefficient=0.1)
    assert mean_kl.item() == pytest.approx(0.75)


def test_refusal_only_where_there_are_token_rewards() -> None:
    refuse_token_rewards(inputs(), estimator="gdpo", why="they belong to none")
    with pytest.raises(ConfigError, match=r"adv_estimator=gdpo .*token rewards.*use_kl_loss=true"):
        refuse_token_rewards(inputs(PENALTY_BT), estimator="gdpo", why="they belong to none")

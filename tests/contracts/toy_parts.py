"""A part of each sort, as a user would bring it: nothing in the package names any of them."""

from __future__ import annotations

from typing import Any

import torch

from rmrl.algorithms.descriptors import estimator, policy_loss
from rmrl.config.schema.actor import ActorConfig
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs, Advantages, LossInputs


@estimator(group=True, token_rewards=False)
def above_the_worst(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """Reward minus the lowest of the group."""
    rewards_B = inputs.rewards_B.clone()
    for group in inputs.group_ids_B.unique():
        rows = inputs.group_ids_B == group
        rewards_B[rows] -= inputs.rewards_B[rows].min()
    return Advantages(advantages_BT=rewards_B[:, None] * inputs.response_mask_BT)


@estimator(values=True)
def reward_minus_value(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """Reward minus the critic's value of each token."""
    assert inputs.values_BT is not None, "a critic is trained for this estimator"
    returns_BT = inputs.rewards_B[:, None] * inputs.response_mask_BT
    return Advantages(
        advantages_BT=(returns_BT - inputs.values_BT) * inputs.response_mask_BT,
        returns_BT=returns_BT,
    )


def plain_reward(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """The reward at every token: a function without a descriptor."""
    return Advantages(advantages_BT=inputs.rewards_B[:, None] * inputs.response_mask_BT)


@policy_loss()
def likelihood(
    inputs: LossInputs, *, settings: ActorConfig
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Advantage-weighted log-likelihood."""
    loss_BT = -inputs.advantages_BT * inputs.logprobs_BT * inputs.mask_BT
    sums: dict[str, Any] = {"toy_tokens": inputs.mask_BT.sum()}
    return loss_BT, sums

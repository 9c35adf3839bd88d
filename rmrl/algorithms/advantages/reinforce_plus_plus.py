"""REINFORCE++: discounted returns over tokens, whitened over the batch; no critic, no groups
(arXiv:2501.03262).

    R_t = r_t + gamma * R_t+1          r_t: token rewards (KL in reward), the sequence reward on
                                       the last token
    A_t = (R_t - mean(R)) / std(R)     over the batch's counted tokens, std unbiased, 1e-8
                                       under its root

Departure: a token outside the mask between counted ones (a tool's answer, say) is passed over: it
neither ends the return nor costs a discount.
"""

from __future__ import annotations

import torch

from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.algorithms.masking import masked_whiten
from rmrl.algorithms.rewards import token_rewards
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs, Advantages


@estimator()
def reinforce_plus_plus(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """Whitened discounted returns. The discount is algorithm.gamma. `group_ids_B` is not read."""
    mask_BT = inputs.response_mask_BT
    returns_BT = discounted_returns(token_rewards(inputs), mask_BT, gamma=settings.gamma)
    advantages_BT = masked_whiten(returns_BT, mask_BT)
    return Advantages(
        advantages_BT=advantages_BT, metrics=advantage_metrics(advantages_BT, mask_BT)
    )


def discounted_returns(
    rewards_BT: torch.Tensor, mask_BT: torch.Tensor, *, gamma: float
) -> torch.Tensor:
    """R_t = r_t + gamma * R_t+1 over counted tokens, [B, T], 0 outside the mask."""
    # token-major copies: walking over the columns of [B, T] would miss the cache at every step
    rewards_TB = rewards_BT.T.contiguous()
    counts_TB = (mask_BT > 0).T.contiguous()
    returns_TB = torch.zeros_like(rewards_TB)
    running_B = torch.zeros_like(rewards_BT.sum(dim=1))
    for t in reversed(range(len(rewards_TB))):
        running_B = torch.where(counts_TB[t], rewards_TB[t] + gamma * running_B, running_B)
        returns_TB[t] = running_B
    return torch.where(mask_BT > 0, returns_TB.T, 0.0)

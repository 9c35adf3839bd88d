"""GAE: advantages and value targets from a critic's values (arXiv:1506.02438, eq. 16).

    delta_t = r_t + gamma * V_t+1 - V_t                  V after the last token is 0
    a_t     = delta_t + gamma * lambda * a_t+1
    returns = a + V;     A = (a - mean(a)) / std(a)      over all counted tokens of the batch, std
      unbiased, 1e-8 under its root

gamma and lambda are algorithm.gamma and algorithm.lam. Both are 1 by default, where a_t = R_t -
V_t. VAPO (arXiv:2504.05118) has two lambdas, one for each use of a:

    algorithm.lam_critic          lambda of the returns. Its own is 1. null: lam
    algorithm.lam_length_alpha    lambda of the policy's advantages: 1 - 1 / (alpha * tokens of the
                                  response), at least 0. Its alpha is 0.05. null: lam

so that the sum of the deltas' weights, 1 / (1 - lambda), grows with the response. Departures:
whitening (the field's habit, not the paper's). A token outside the mask between counted ones is
passed over, as in REINFORCE++.
"""

from __future__ import annotations

import torch

from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.algorithms.masking import masked_whiten
from rmrl.algorithms.rewards import token_rewards
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.errors import ConfigError
from rmrl.types import AdvantageInputs, Advantages


@estimator(values=True)
def gae(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """Whitened advantages and the critic's targets `returns_BT`. Raises ConfigError without
    `values_BT`."""
    if inputs.values_BT is None:
        raise ConfigError(
            "algorithm.adv_estimator=gae needs a critic's value for each token, but the batch has"
            " no values: train a critic (critic.enable=true), or use adv_estimator=grpo, rloo or"
            " reinforce_plus_plus, which need none"
        )
    mask_BT = inputs.response_mask_BT
    values_BT = torch.where(mask_BT > 0, inputs.values_BT, 0.0)
    rewards_BT = token_rewards(inputs)
    policy_lam: float | torch.Tensor = settings.lam
    if settings.lam_length_alpha is not None:
        lengths_B = (mask_BT > 0).sum(dim=1).clamp(min=1)
        policy_lam = (1 - 1 / (settings.lam_length_alpha * lengths_B)).clamp(min=0)
    raw_BT = generalised_advantages(
        rewards_BT, values_BT, mask_BT, gamma=settings.gamma, lam=policy_lam
    )
    critic_BT = raw_BT
    if settings.lam_critic is not None or settings.lam_length_alpha is not None:
        lam = settings.lam if settings.lam_critic is None else settings.lam_critic
        critic_BT = generalised_advantages(
            rewards_BT, values_BT, mask_BT, gamma=settings.gamma, lam=lam
        )
    advantages_BT = masked_whiten(raw_BT, mask_BT)
    return Advantages(
        advantages_BT=advantages_BT,
        returns_BT=critic_BT + values_BT,
        metrics=advantage_metrics(advantages_BT, mask_BT),
    )  # both terms of the returns are 0 outside the mask


def generalised_advantages(
    rewards_BT: torch.Tensor,
    values_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    *,
    gamma: float,
    lam: float | torch.Tensor,
) -> torch.Tensor:
    """a_t over counted tokens, not whitened, [B, T], 0 outside the mask. `gamma` and `lam`, one
    number or one per row [B], lie in 0..1."""
    # token-major copies: walking over the columns of [B, T] would miss the cache at every step
    rewards_TB, values_TB, counts_TB = (
        stream.T.contiguous() for stream in (rewards_BT, values_BT, mask_BT > 0)
    )
    advantages_TB = torch.zeros_like(rewards_TB)
    next_value_B = torch.zeros_like(rewards_BT.sum(dim=1))
    next_advantage_B = torch.zeros_like(next_value_B)
    for t in reversed(range(len(rewards_TB))):
        delta_B = rewards_TB[t] + gamma * next_value_B - values_TB[t]
        next_advantage_B = torch.where(
            counts_TB[t], delta_B + gamma * lam * next_advantage_B, next_advantage_B
        )
        next_value_B = torch.where(counts_TB[t], values_TB[t], next_value_B)
        advantages_TB[t] = next_advantage_B
    return torch.where(mask_BT > 0, advantages_TB.T, 0.0)

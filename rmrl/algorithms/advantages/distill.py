"""On-policy distillation: each token's own reward, beside GRPO's advantage for the outcome (K. Lu,
"On-Policy Distillation", Thinking Machines Lab, 2025; arXiv:2306.13649).

    A_i,t = G_i + r_i,t

r_i,t: the token's own reward, with a teacher whose weight is w: w * (log p_teacher - log p_policy),
and never a later token's: a discount equal to 0, as in the first source. So the policy gradient is
that of the negative reverse KL divergence of each next token, at the places where the policy went
(departure from its exact gradient: a token is not credited with where it leads).
G_i: GRPO's advantage (grpo.py, with its settings) from the reward alone, without token rewards. It
is exactly 0 where a group's rewards are all equal, as with teachers alone, and for a single
response. So there is no baseline, no whitening and no need for several responses with teachers
alone.
"""

from __future__ import annotations

import dataclasses

import torch

from rmrl.algorithms.advantages.grpo import grpo
from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs, Advantages


@estimator(group_beside_tokens=True)
def distill(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """Each token's own reward plus the outcome's GRPO advantage."""
    mask_BT = inputs.response_mask_BT
    outcome = grpo(dataclasses.replace(inputs, token_rewards_BT=None), settings=settings)
    advantages_BT = outcome.advantages_BT
    if inputs.token_rewards_BT is not None:
        advantages_BT = advantages_BT + torch.where(mask_BT > 0, inputs.token_rewards_BT, 0.0)
    metrics = outcome.metrics | advantage_metrics(advantages_BT, mask_BT)
    return Advantages(advantages_BT=advantages_BT, metrics=metrics)

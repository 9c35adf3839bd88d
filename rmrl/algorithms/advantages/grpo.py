"""GRPO: a response is as good as it is better than its siblings (arXiv:2402.03300, eq. 3 with
outcome supervision).

    A_i,t = (r_i - mean(r)) / (std(r) + 1e-6)      over the responses to the same prompt, the same
      for every token
    A_i,t =  r_i - mean(r)                         norm_adv_by_std_in_grpo=false: Dr. GRPO
      (arXiv:2503.20783)
    A_i,t = (r_i - mean(r)) / (std of the batch + 1e-6)    scale_rewards=batch (arXiv:2508.08221):
      the mean is the group's, the deviation the batch's
    A_i,t = (r_i - mean of the others) / (std of the others + 1e-6)    leave_one_out=true

std is unbiased (N - 1). Departures: a group whose rewards are equal up to rounding, or that has one
response, gets exactly 0 (dividing rounding noise by its own size would give advantages near 1).
With leave_one_out a response whose siblings are all equal is not divided; token rewards, KL in
reward among them, are summed into r_i first.
"""

from __future__ import annotations

import torch

from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.algorithms.groups import constant_fraction, group_statistics, leave_one_out
from rmrl.algorithms.rewards import sequence_rewards, spread_over_tokens
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs, Advantages

STD_EPSILON = 1e-6


@estimator(group=True)
def grpo(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """Group-relative advantages; `group/constant_fraction` is the share of groups that teach
    nothing."""
    mask_BT = inputs.response_mask_BT
    rewards_B = sequence_rewards(inputs)
    group = group_statistics(rewards_B, inputs.group_ids_B)
    centred_B = group.centred_B
    std_B = group.std_B
    if settings.leave_one_out:
        centred_B, std_B = leave_one_out(group)
    scale = settings.scale_rewards
    if scale is None:
        scale = "group" if settings.norm_adv_by_std_in_grpo else "none"
    if scale == "batch":
        one_group_B = torch.zeros_like(rewards_B, dtype=torch.long)
        std_B = group_statistics(rewards_B, one_group_B).std_B
    advantages_B = centred_B / (std_B + STD_EPSILON)
    if scale == "none":
        advantages_B = centred_B
    elif settings.leave_one_out and scale == "group":
        advantages_B = torch.where(std_B > 0, advantages_B, centred_B)
    advantages_BT = spread_over_tokens(advantages_B, mask_BT)
    metrics = {
        **advantage_metrics(advantages_BT, mask_BT),
        "group/constant_fraction": constant_fraction(group),
    }
    return Advantages(advantages_BT=advantages_BT, metrics=metrics)

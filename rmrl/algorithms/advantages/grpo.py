"""GRPO: a response is as good as it is better than its siblings (arXiv:2402.03300, eq. 3 with
outcome supervision).

    A_i,t = (r_i - mean(r)) / (std(r) + 1e-6)      over the responses to the same prompt, the same
      for every token
    A_i,t =  r_i - mean(r)                         norm_adv_by_std_in_grpo=false: Dr. GRPO
      (arXiv:2503.20783)

std is unbiased (N - 1). Departures: a group whose rewards are equal up to rounding, and a group of
one, get exactly 0 (dividing rounding noise by its own size would give advantages near 1); token
rewards, KL in reward among them, are summed into r_i first.
"""

from __future__ import annotations

from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.algorithms.groups import constant_fraction, group_statistics
from rmrl.algorithms.rewards import sequence_rewards, spread_over_tokens
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs, Advantages

STD_EPSILON = 1e-6


@estimator(group=True)
def grpo(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """Group-relative advantages; `group/constant_fraction` is the share of groups that teach
    nothing."""
    mask_BT = inputs.response_mask_BT
    group = group_statistics(sequence_rewards(inputs), inputs.group_ids_B)
    scale_B = group.std_B + STD_EPSILON if settings.norm_adv_by_std_in_grpo else 1.0
    advantages_BT = spread_over_tokens(group.centred_B / scale_B, mask_BT)
    metrics = {
        **advantage_metrics(advantages_BT, mask_BT),
        "group/constant_fraction": constant_fraction(group),
    }
    return Advantages(advantages_BT=advantages_BT, metrics=metrics)

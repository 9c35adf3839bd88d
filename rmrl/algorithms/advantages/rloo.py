"""RLOO: REINFORCE with the other responses' mean as baseline (arXiv:2402.14740).

    A_i,t = r_i - mean of r_j, j != i  =  N / (N - 1) * (r_i - mean(r))          over the N
      responses to the same prompt

Departures: a single response has no others and gets 0. A constant group gets exactly 0; token
rewards are summed into r_i first.
"""

from __future__ import annotations

from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.algorithms.groups import constant_fraction, group_statistics
from rmrl.algorithms.rewards import sequence_rewards, spread_over_tokens
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs, Advantages


@estimator(group=True)
def rloo(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:  # noqa: ARG001
    """Leave-one-out advantages; `group/constant_fraction` is the share of groups that teach
    nothing."""
    mask_BT = inputs.response_mask_BT
    group = group_statistics(sequence_rewards(inputs), inputs.group_ids_B)
    advantages_B = group.centred_B * group.count_B / (group.count_B - 1).clamp(min=1)
    advantages_BT = spread_over_tokens(advantages_B, mask_BT)
    metrics = {
        **advantage_metrics(advantages_BT, mask_BT),
        "group/constant_fraction": constant_fraction(group),
    }
    return Advantages(advantages_BT=advantages_BT, metrics=metrics)

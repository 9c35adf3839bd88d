"""OPO: the group baseline with the least variance when the gradient's size grows with length
(arXiv:2505.23585).

    A_i,t = r_i - sum(len_j * r_j) / sum(len_j)          over the responses to the same prompt, len
      in counted tokens

Departures: a constant group and a single response get exactly 0; token rewards are summed into r_i
  first.
"""

from __future__ import annotations

from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.algorithms.groups import constant_fraction, group_mean, group_statistics
from rmrl.algorithms.rewards import sequence_rewards, spread_over_tokens
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs, Advantages


@estimator(group=True)
def opo(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:  # noqa: ARG001
    """Advantages over the length-weighted group mean; `group/constant_fraction` is the share of
    groups that teach nothing."""
    mask_BT = inputs.response_mask_BT
    group = group_statistics(sequence_rewards(inputs), inputs.group_ids_B)
    lengths_B = (mask_BT > 0).sum(dim=1).double()
    # the paper's baseline relative to the mean: exactly 0 in a constant group; a group of empty
    # rows has no token to train on
    shift_B = group_mean(lengths_B * group.centred_B, inputs.group_ids_B) / group_mean(
        lengths_B, inputs.group_ids_B
    ).clamp(min=1e-9)
    advantages_BT = spread_over_tokens(group.centred_B - shift_B, mask_BT)
    metrics = {
        **advantage_metrics(advantages_BT, mask_BT),
        "group/constant_fraction": constant_fraction(group),
    }
    return Advantages(advantages_BT=advantages_BT, metrics=metrics)

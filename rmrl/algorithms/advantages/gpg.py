"""GPG: the group mean as baseline, and a scale that makes up for groups without contrast
(arXiv:2504.02546).

    A_i,t = alpha * (r_i - mean(r))        over the responses to the same prompt
    alpha = B / (B - M)                    B rows of the batch, M of them in groups whose rewards
      are all equal

Rows with equal rewards have gradient 0 and still count in the loss's divisor, so the batch's
gradient shrinks with their share; alpha undoes that. Use with policy_loss.loss_mode=gpg, the plain
policy gradient. Departures: F_norm is 1, so no division by the standard deviation (the paper's own
choice). Equal means equal up to rounding, and a single response counts as equal. Without any
contrast all advantages are 0; token rewards are summed into r_i first.
"""

from __future__ import annotations

from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.algorithms.groups import constant_fraction, group_statistics
from rmrl.algorithms.rewards import sequence_rewards, spread_over_tokens
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs, Advantages


@estimator(group=True)
def gpg(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:  # noqa: ARG001
    """Scaled group-centred advantages; `group/constant_fraction` is the share of groups that teach
    nothing, `gpg/alpha` the scale."""
    mask_BT = inputs.response_mask_BT
    group = group_statistics(sequence_rewards(inputs), inputs.group_ids_B)
    informative = len(group.constant_B) - int(group.constant_B.sum())
    alpha = len(group.constant_B) / max(informative, 1)
    advantages_BT = spread_over_tokens(alpha * group.centred_B, mask_BT)
    metrics = {
        **advantage_metrics(advantages_BT, mask_BT),
        "group/constant_fraction": constant_fraction(group),
        "gpg/alpha": alpha,
    }
    return Advantages(advantages_BT=advantages_BT, metrics=metrics)

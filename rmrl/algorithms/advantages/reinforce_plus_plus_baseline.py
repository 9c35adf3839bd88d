"""REINFORCE++ with the group mean as baseline (arXiv:2501.03262, the variant for several responses
per prompt).

    a_i   = r_i - mean(r)                          over the responses to the same prompt
    A_i,t = (a_i - mean(a)) / std(a)               over the batch's counted tokens, std
      unbiased, 1e-8 under its root

The whole batch's scale, not the group's, so easy prompts are not blown up. Departures: a constant
group's a_i is exactly 0 (before whitening. Its tokens are then shifted like all others); token
rewards are summed into r_i first.
"""

from __future__ import annotations

from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.algorithms.groups import constant_fraction, group_statistics
from rmrl.algorithms.masking import masked_whiten
from rmrl.algorithms.rewards import sequence_rewards, spread_over_tokens
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs, Advantages


@estimator(group=True)
def reinforce_plus_plus_baseline(
    inputs: AdvantageInputs,
    *,
    settings: AlgorithmConfig,  # noqa: ARG001
) -> Advantages:
    """Group-centred, batch-whitened advantages; `group/constant_fraction` is the share of groups
    without contrast."""
    mask_BT = inputs.response_mask_BT
    group = group_statistics(sequence_rewards(inputs), inputs.group_ids_B)
    advantages_BT = masked_whiten(spread_over_tokens(group.centred_B, mask_BT), mask_BT)
    metrics = {
        **advantage_metrics(advantages_BT, mask_BT),
        "group/constant_fraction": constant_fraction(group),
    }
    return Advantages(advantages_BT=advantages_BT, metrics=metrics)

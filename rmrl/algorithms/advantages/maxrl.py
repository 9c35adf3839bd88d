"""MaxRL: a success counts the more the rarer it is, as in maximum likelihood (arXiv:2602.02710,
algorithm 1).

    A_i,t = (r_i - mean(r)) / mean(r)          over the N responses to the same prompt

For rewards of 0 and 1 the mean is the share of successes p, and the expected gradient is that of
the sum of pass@k / k for k = 1..N - 1, whose limit for large N is log p. (The paper's form without
the baseline, r_i / mean(r), reaches k = N; that the baseline is left out where no response succeeds
costs the last term.) A prompt without a success has advantage 0, as in the paper. Rewards other
than 0 and 1 are outside its derivation: a group whose mean is not above rounding has advantage 0 as
well. Departures: a single response and a constant group get exactly 0. The paper's 1 / N is left to
loss_agg_mode, as its authors' code does, and their 1e-6 beside the mean is left out. Token rewards
are refused: a penalty moves the mean and so the prompt's weight.
"""

from __future__ import annotations

import torch

from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.algorithms.groups import constant_fraction, group_statistics
from rmrl.algorithms.masking import rounding_floor
from rmrl.algorithms.rewards import refuse_token_rewards, spread_over_tokens
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs, Advantages


@estimator(group=True, token_rewards=False)
def maxrl(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:  # noqa: ARG001
    """Group-centred rewards over the group mean; `maxrl/no_success` is the share of rows whose
    group has no mean above 0. Raises ConfigError for token rewards."""
    refuse_token_rewards(
        inputs,
        estimator="maxrl",
        why="the mean of a group is its share of successes, and a penalty would move it",
    )
    mask_BT = inputs.response_mask_BT
    group = group_statistics(inputs.rewards_B, inputs.group_ids_B)
    success_B = group.mean_B > rounding_floor(group.mean_B.abs())
    safe_mean_B = torch.where(success_B, group.mean_B, 1.0)
    advantages_B = torch.where(success_B, group.centred_B / safe_mean_B, 0.0)
    advantages_BT = spread_over_tokens(advantages_B, mask_BT)
    metrics = {
        **advantage_metrics(advantages_BT, mask_BT),
        "group/constant_fraction": constant_fraction(group),
        "maxrl/no_success": 1 - int(success_B.sum()) / max(len(success_B), 1),
    }
    return Advantages(advantages_BT=advantages_BT, metrics=metrics)

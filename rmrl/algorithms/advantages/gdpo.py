"""GDPO: every component is compared within its group on its own scale, then added up
(arXiv:2601.05242).

    a_i,c = (s_i,c - mean(s_c)) / (std(s_c) + 1e-6)    over the responses to the same prompt that
                                                       have component c
    a_i   = sum over c of w_c * a_i,c
    A_i,t = (a_i - mean(a)) / (std(a) + 1e-6)          over all rows in the batch

Summing first, as GRPO does, lets different mixtures of scores end in the same advantage, and the
component that spreads most decides. Standard deviations are unbiased. A missing verdict (NaN) is in
none of its component's statistics and adds nothing to its row. A row without any verdict has
advantage 0 and is not in the last step. A component whose weight is 0 is in no step at all.
norm_adv_by_std_in_grpo=false leaves the first division out. The reward itself is not read:
reward.combine has no effect, reward.weights are w. Departures: a component without contrast in a
group adds exactly 0, and so does the last step where all a_i are equal; token rewards are refused,
since they belong to no component.
"""

from __future__ import annotations

import torch

from rmrl.algorithms.advantages.grpo import STD_EPSILON
from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.algorithms.groups import constant_fraction, group_statistics
from rmrl.algorithms.rewards import refuse_token_rewards, spread_over_tokens
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.errors import ConfigError
from rmrl.types import AdvantageInputs, Advantages, Metrics


@estimator(group=True, components=True, token_rewards=False)
def gdpo(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """Group-normalised components, summed and batch-normalised; `group/constant_fraction` is the
    mean over components.

    Raises ConfigError without `scores_BC` and `weights_C`, and for token rewards.
    """
    if inputs.scores_BC is None or inputs.weights_C is None:
        raise ConfigError(
            "algorithm.adv_estimator=gdpo needs the score of each component, but the batch has"
            " none: use adv_estimator=grpo"
        )
    refuse_token_rewards(
        inputs,
        estimator="gdpo",
        why="every component is normalised on its own, and they belong to none",
    )
    scores_BC = inputs.scores_BC[:, inputs.weights_C != 0]
    weights = inputs.weights_C[inputs.weights_C != 0].tolist()
    summed_B = torch.zeros(len(scores_BC), dtype=torch.float64, device=scores_BC.device)
    constant: list[float] = []
    for column_B, weight in zip(scores_BC.T, weights, strict=True):
        has_B = ~column_B.isnan()
        group = group_statistics(column_B[has_B], inputs.group_ids_B[has_B])
        scale_B = group.std_B + STD_EPSILON if settings.norm_adv_by_std_in_grpo else 1.0
        summed_B[has_B] += weight * group.centred_B / scale_B
        constant.append(constant_fraction(group))
    scored_B = ~scores_BC.isnan().all(dim=1)
    # The scored rows count as one group; the others get 0.
    one_group = torch.zeros_like(scored_B[scored_B], dtype=torch.long)
    whole = group_statistics(summed_B[scored_B], one_group)
    normalised_B = torch.zeros_like(summed_B)
    normalised_B[scored_B] = whole.centred_B / (whole.std_B + STD_EPSILON)
    advantages_BT = spread_over_tokens(normalised_B, inputs.response_mask_BT)
    metrics: Metrics = {
        **advantage_metrics(advantages_BT, inputs.response_mask_BT),
        "group/constant_fraction": sum(constant) / max(len(constant), 1),
    }
    return Advantages(advantages_BT=advantages_BT, metrics=metrics)

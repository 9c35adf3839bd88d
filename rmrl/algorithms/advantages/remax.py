"""ReMax: REINFORCE with the greedy response's reward as baseline; no critic, no groups
(arXiv:2310.10505, algorithm 1).

    A_t = R_t - r(greedy response to the same prompt),        R_t = sum of r_t' over t' >= t

r_t: token rewards (KL in reward, process rewards), the sequence reward on the last token. One
greedy response per prompt is sampled and scored beside the others. Departures: none in the
equation, so no discount (algorithm.gamma is not read) and no whitening; token rewards are not part
of the greedy response's reward, which is any number that does not depend on the sampled response
and so no bias. A row whose greedy response has no verdict (NaN) has advantage 0: nothing is learned
from it, and it still counts in the loss's divisor.
"""

from __future__ import annotations

from rmrl.algorithms.advantages.reinforce_plus_plus import discounted_returns
from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.algorithms.rewards import token_rewards
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.errors import ConfigError
from rmrl.types import AdvantageInputs, Advantages


@estimator(baseline=True)
def remax(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:  # noqa: ARG001
    """Return-to-go minus the greedy reward. `baseline/missing` is the share of rows without one,
    `baseline/mean` is the others' mean.

    Raises ConfigError without `baseline_rewards_B`.
    """
    if inputs.baseline_rewards_B is None:
        raise ConfigError(
            "algorithm.adv_estimator=remax needs the reward of a greedy response to each prompt,"
            " but the batch has none: use adv_estimator=grpo, rloo or reinforce_plus_plus, which"
            " need none"
        )
    mask_BT = inputs.response_mask_BT
    baseline_B = inputs.baseline_rewards_B
    has_B = ~baseline_B.isnan()
    returns_BT = discounted_returns(token_rewards(inputs), mask_BT, gamma=1.0)
    counts_BT = (mask_BT > 0) & has_B[:, None]
    advantages_BT = (returns_BT - baseline_B[:, None]).masked_fill(~counts_BT, 0.0)
    metrics = {
        **advantage_metrics(advantages_BT, mask_BT),
        "baseline/mean": baseline_B[has_B].mean().item() if has_B.any() else 0.0,
        "baseline/missing": 1 - has_B.float().mean().item() if len(has_B) else 0.0,
    }
    return Advantages(advantages_BT=advantages_BT, metrics=metrics)

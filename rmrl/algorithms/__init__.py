"""From rewards to advantages to losses: pure tensor functions, no processes, no models, no files.

Advantage estimators have the signature `(AdvantageInputs, *, settings: AlgorithmConfig) ->
  Advantages`; policy losses have
`(LossInputs, *, settings: ActorConfig) -> (loss_BT, metric_sums)`. Importing this package imports
  no torch; looking a name up does.
To add one: a file beside the others and a line in its table. A user's own needs no line:
  `package.module:function` is a name too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from rmrl.registry import Registry
from rmrl.types import AdvantageInputs, Advantages, LossInputs

if TYPE_CHECKING:
    import torch

AdvantageEstimator: TypeAlias = Callable[..., Advantages]
"""`(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages`."""
PolicyLoss: TypeAlias = "Callable[..., tuple[torch.Tensor, dict[str, torch.Tensor]]]"
"""`(inputs: LossInputs, *, settings: ActorConfig) -> (loss_BT, sums over counted tokens)`."""

ADVANTAGES: Registry[AdvantageEstimator] = Registry(
    "algorithm.adv_estimator",
    {
        "gae": "rmrl.algorithms.advantages.gae:gae",
        "gdpo": "rmrl.algorithms.advantages.gdpo:gdpo",
        "gpg": "rmrl.algorithms.advantages.gpg:gpg",
        "grpo": "rmrl.algorithms.advantages.grpo:grpo",
        "grpo_passk": "rmrl.algorithms.advantages.grpo_passk:grpo_passk",
        "opo": "rmrl.algorithms.advantages.opo:opo",
        "reinforce_plus_plus": "rmrl.algorithms.advantages.reinforce_plus_plus:reinforce_plus_plus",
        "reinforce_plus_plus_baseline": (
            "rmrl.algorithms.advantages.reinforce_plus_plus_baseline:reinforce_plus_plus_baseline"
        ),
        "remax": "rmrl.algorithms.advantages.remax:remax",
        "rloo": "rmrl.algorithms.advantages.rloo:rloo",
    },
)

LOSSES: Registry[PolicyLoss] = Registry(
    "actor_rollout_ref.actor.policy_loss.loss_mode",
    {
        "cispo": "rmrl.algorithms.losses.cispo:cispo",
        "clip_cov": "rmrl.algorithms.losses.covariance:clip_cov",
        "dppo_kl": "rmrl.algorithms.losses.dppo:dppo_kl",
        "dppo_tv": "rmrl.algorithms.losses.dppo:dppo_tv",
        "dro": "rmrl.algorithms.losses.dro:dro",
        "geo_mean": "rmrl.algorithms.losses.gmpo:gmpo",
        "gmpo": "rmrl.algorithms.losses.gmpo:gmpo",
        "gpg": "rmrl.algorithms.losses.reinforce:reinforce",
        "gspo": "rmrl.algorithms.losses.gspo:gspo",
        "kl_cov": "rmrl.algorithms.losses.covariance:kl_cov",
        "reinforce": "rmrl.algorithms.losses.reinforce:reinforce",
        "sapo": "rmrl.algorithms.losses.sapo:sapo",
        "vanilla": "rmrl.algorithms.losses.vanilla:vanilla",
    },
)

GROUP_ESTIMATORS = (
    "gdpo",
    "gpg",
    "grpo",
    "grpo_passk",
    "opo",
    "reinforce_plus_plus_baseline",
    "rloo",
)
"""Compare the responses to one prompt: with a single one every advantage is 0."""
NEEDS_VALUES = ("gae",)
"""Read `values_BT`, which a critic gives."""
NEEDS_BASELINE = ("remax",)
"""Read `baseline_rewards_B`, the reward of a greedy response to each prompt."""
REFUSES_TOKEN_REWARDS = ("gdpo", "grpo_passk")
"""Raise ConfigError for `token_rewards_BT`, which KL in reward and process rewards are."""
CUT_DEPENDENT_LOSSES = ("clip_cov", "kl_cov")
"""Choose tokens by a statistic of the micro-batch: their result depends on how a batch is cut."""

__all__ = [
    "ADVANTAGES", "CUT_DEPENDENT_LOSSES", "GROUP_ESTIMATORS", "LOSSES", "NEEDS_BASELINE", "NEEDS_VALUES", "REFUSES_TOKEN_REWARDS",
    "AdvantageEstimator", "AdvantageInputs", "Advantages", "LossInputs", "PolicyLoss",
]  # fmt: skip

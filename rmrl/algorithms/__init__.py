"""Rewards to advantages to losses: pure tensor functions, no processes, no models, no files.

Advantage estimators have the signature `(AdvantageInputs, *, settings: AlgorithmConfig) ->
Advantages`. Policy losses have `(LossInputs, *, settings: ActorConfig) -> (loss_BT, metric_sums)`.
Importing this package imports no torch, looking a name up does. To add one, write a file beside the
others, whose function states its facts with `@estimator(...)` or `@policy_loss(...)`
(descriptors.py), and a line in its table. A user's own part needs no line:
`package.module:function` is a name too.
"""

from __future__ import annotations

from rmrl.algorithms.descriptors import (
    Estimator,
    EstimatorFunction,
    Loss,
    LossFunction,
    described_estimator,
    described_loss,
)
from rmrl.registry import Registry
from rmrl.types import AdvantageInputs, Advantages, LossInputs

ADVANTAGES: Registry[Estimator | EstimatorFunction] = Registry(
    "algorithm.adv_estimator",
    {
        "distill": "rmrl.algorithms.advantages.distill:distill",
        "gae": "rmrl.algorithms.advantages.gae:gae",
        "gdpo": "rmrl.algorithms.advantages.gdpo:gdpo",
        "gpg": "rmrl.algorithms.advantages.gpg:gpg",
        "grpo": "rmrl.algorithms.advantages.grpo:grpo",
        "grpo_passk": "rmrl.algorithms.advantages.grpo_passk:grpo_passk",
        "maxrl": "rmrl.algorithms.advantages.maxrl:maxrl",
        "opo": "rmrl.algorithms.advantages.opo:opo",
        "optimal_token_baseline": (
            "rmrl.algorithms.advantages.optimal_token_baseline:optimal_token_baseline"
        ),
        "reinforce_plus_plus": "rmrl.algorithms.advantages.reinforce_plus_plus:reinforce_plus_plus",
        "reinforce_plus_plus_baseline": (
            "rmrl.algorithms.advantages.reinforce_plus_plus_baseline:reinforce_plus_plus_baseline"
        ),
        "remax": "rmrl.algorithms.advantages.remax:remax",
        "rloo": "rmrl.algorithms.advantages.rloo:rloo",
    },
)

LOSSES: Registry[Loss | LossFunction] = Registry(
    "actor_rollout_ref.actor.policy_loss.loss_mode",
    {
        "cispo": "rmrl.algorithms.losses.cispo:cispo",
        "clip_cov": "rmrl.algorithms.losses.covariance:clip_cov",
        "dppo_kl": "rmrl.algorithms.losses.dppo:dppo_kl",
        "dppo_tv": "rmrl.algorithms.losses.dppo:dppo_tv",
        "dro": "rmrl.algorithms.losses.dro:dro",
        "fipo": "rmrl.algorithms.losses.fipo:fipo",
        "geo_mean": "rmrl.algorithms.losses.gmpo:gmpo",
        "gmpo": "rmrl.algorithms.losses.gmpo:gmpo",
        "gpg": "rmrl.algorithms.losses.reinforce:reinforce",
        "gspo": "rmrl.algorithms.losses.gspo:gspo",
        "ipo": "rmrl.algorithms.losses.ipo:ipo",
        "kl_cov": "rmrl.algorithms.losses.covariance:kl_cov",
        "luspo": "rmrl.algorithms.losses.gspo:gspo",
        "reinforce": "rmrl.algorithms.losses.reinforce:reinforce",
        "sapo": "rmrl.algorithms.losses.sapo:sapo",
        "topr": "rmrl.algorithms.losses.topr:topr",
        "vanilla": "rmrl.algorithms.losses.vanilla:vanilla",
        "vespo": "rmrl.algorithms.losses.vespo:vespo",
    },
)


def estimator_named(name: str) -> Estimator:
    """Return the descriptor for the estimator `name`. Raises ConfigError for an unknown name,
    ImportError or AttributeError where importing a user's own part raises them."""
    return described_estimator(ADVANTAGES[name])


def loss_named(name: str) -> Loss:
    """Return the descriptor for the policy loss `name`. Raises as `estimator_named`."""
    return described_loss(LOSSES[name])


__all__ = [
    "ADVANTAGES",
    "LOSSES",
    "AdvantageInputs",
    "Advantages",
    "Estimator",
    "EstimatorFunction",
    "Loss",
    "LossFunction",
    "LossInputs",
    "estimator_named",
    "loss_named",
]

"""From rewards to advantages to losses: pure tensor functions, no processes, no models, no files.

Advantage estimators have the signature `(AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages`; policy losses have
`(LossInputs, *, settings: ActorConfig) -> (loss_BT, metric_sums)`. Importing this package imports no torch; looking a name up does.
To add one: a file beside the others and a line in its table. A user's own needs no line: `package.module:function` is a name too.
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
        "grpo": "rmrl.algorithms.advantages.grpo:grpo",
        "opo": "rmrl.algorithms.advantages.opo:opo",
        "reinforce_plus_plus": "rmrl.algorithms.advantages.reinforce_plus_plus:reinforce_plus_plus",
        "reinforce_plus_plus_baseline": "rmrl.algorithms.advantages.reinforce_plus_plus_baseline:reinforce_plus_plus_baseline",
        "rloo": "rmrl.algorithms.advantages.rloo:rloo",
    },
)

LOSSES: Registry[PolicyLoss] = Registry(
    "actor_rollout_ref.actor.policy_loss",
    {
        "cispo": "rmrl.algorithms.losses.cispo:cispo",
        "gpg": "rmrl.algorithms.losses.reinforce:reinforce",
        "gspo": "rmrl.algorithms.losses.gspo:gspo",
        "reinforce": "rmrl.algorithms.losses.reinforce:reinforce",
        "vanilla": "rmrl.algorithms.losses.vanilla:vanilla",
    },
)

__all__ = ["ADVANTAGES", "LOSSES", "AdvantageEstimator", "AdvantageInputs", "Advantages", "LossInputs", "PolicyLoss"]

"""Descriptors of advantage estimators and policy losses, declared beside their code.

    @estimator(group=True)
    def median_baseline(inputs, *, settings): ...

A plain function is a part too: `described_estimator` and `described_loss` give it the defaults.
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from rmrl.config.schema.actor import ActorConfig
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs, Advantages, LossInputs

if TYPE_CHECKING:
    import torch

EstimatorFunction: TypeAlias = Callable[..., Advantages]
"""`(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages`."""
LossFunction: TypeAlias = "Callable[..., tuple[torch.Tensor, dict[str, torch.Tensor]]]"
"""`(inputs: LossInputs, *, settings: ActorConfig) -> (loss_BT, sums over counted tokens)`."""


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """An advantage estimator and what a run must have for it. Called like its function."""

    fn: EstimatorFunction
    group: bool = False
    """Compares the responses to one prompt: with a single response every advantage is 0."""
    group_beside_tokens: bool = False
    """Compares the rewards of the responses to one prompt, beside token rewards that need no other
    response. With a single response only the token rewards train."""
    values: bool | None = False
    """Reads `values_BT`, which a critic gives. None: not known. The critic is then trained where
    critic.enable=True, and its absence is no problem."""
    baseline: bool = False
    """Reads `baseline_rewards_B`, a greedy response's reward for each prompt."""
    components: bool = False
    """Reads `scores_BC` and `weights_C`, each reward's score and weight."""
    energies: bool = False
    """Reads `energies_BT`, for which the training engine computes the old policy's
    log-probabilities in a separate forward pass."""
    token_rewards: bool = True
    """Takes `token_rewards_BT` (KL in reward, process rewards). False: raises ConfigError for
    them."""
    problems: Callable[[AlgorithmConfig], Sequence[str]] = lambda _: ()
    """(settings) -> sentences about settings with which the estimator cannot work."""

    def __call__(self, inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
        return self.fn(inputs, settings=settings)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A policy loss and the facts about it. Called like its function."""

    fn: LossFunction
    depends_on_cut: bool = False
    """Chooses tokens by a micro-batch statistic: the result depends on how a batch is cut."""

    def __call__(
        self, inputs: LossInputs, *, settings: ActorConfig
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return self.fn(inputs, settings=settings)


def estimator(**facts: Any) -> Callable[[EstimatorFunction], Estimator]:
    """Decorate an estimator's function. `facts`: fields of `Estimator` other than `fn`."""
    return lambda fn: Estimator(fn=fn, **facts)


def policy_loss(**facts: Any) -> Callable[[LossFunction], Loss]:
    """Decorate a loss's function. `facts`: fields of `Loss` other than `fn`."""
    return lambda fn: Loss(fn=fn, **facts)


def described_estimator(part: Estimator | EstimatorFunction) -> Estimator:
    """Return `part`, or the descriptor with the defaults for a plain function. Whether a plain
    function reads values is unknown."""
    return part if isinstance(part, Estimator) else Estimator(fn=part, values=None)


def described_loss(part: Loss | LossFunction) -> Loss:
    """Return `part`, or the descriptor with the defaults for a plain function."""
    return part if isinstance(part, Loss) else Loss(fn=part)

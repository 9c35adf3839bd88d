"""Estimate KL(policy || reference) per token from policy samples, and control the penalty's
coefficient.

With d = log pi_ref(y) - log pi(y) and y drawn from pi (J. Schulman, "Approximating KL Divergence",
http://joschu.net/blog/kl-approx.html):

| name         | estimator           | note                                                       |
|--------------|---------------------|------------------------------------------------------------|
| `kl`         | k1 = -d             | unbiased, any sign; as a loss its expected gradient is 0,  |
|              |                     | so use it in rewards                                       |
| `abs`        | abs(d)              | biased, >= 0                                               |
| `mse`        | k2 = d^2 / 2        | biased, >= 0; as a loss its gradient is that of the KL, in |
|              |                     | expectation                                                |
| `low_var_kl` | k3 = exp(d) - 1 - d | unbiased, >= 0, low variance (GRPO, arXiv:2402.03300,      |
|              |                     | eq. 4)                                                     |

A name with a + behind it (`kl+`, `abs+`, `low_var_kl+`, ...) has the value of the estimator and the
gradient of k2: unbiased as a number, and as a loss, on policy, the gradient of the KL
(arXiv:2506.09477; arXiv:2512.21852 compares them). Straight through, that is

    k2 - sg[k2] + sg[estimate]

Clamps: only `low_var_kl` has any, because only it can overflow: d to [-20, 20] and the result to at
most 10, the field's usual bounds. A token beyond the latter (d > 2.611 or d < -11, the two roots of
exp(d) - 1 - d = 10) adds the bound and carries no gradient. The other estimators are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from rmrl.config.check import kl_control_problems
from rmrl.config.plain_checks import field_problems
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

if TYPE_CHECKING:
    import torch

    from rmrl.config.schema.algorithm import KLControlConfig

Estimator: TypeAlias = "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"

LOG_RATIO_BOUND = 20.0
LOW_VAR_KL_BOUND = 10.0
PROPORTIONAL_ERROR_BOUND = 0.2
LOWEST_COEFFICIENT_SHARE = 1e-4
"""The adaptive coefficient stays at or above this share of kl_coef, so that some fifty steps can
bring it back."""


def _k1(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    return logprobs - ref_logprobs


def _absolute(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    return (logprobs - ref_logprobs).abs()


def _k2(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    return 0.5 * (logprobs - ref_logprobs).square()


def _k3(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    log_ratio = (ref_logprobs - logprobs).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    # expm1 keeps k3 exact and non-negative near 0, where exp(d) - d - 1 loses all digits
    return (log_ratio.expm1() - log_ratio).clamp(0.0, LOW_VAR_KL_BOUND)


def _with_gradient_of_k2(estimator: Estimator) -> Estimator:
    def straight_through(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
        k2 = _k2(logprobs, ref_logprobs)
        return k2 - k2.detach() + estimator(logprobs, ref_logprobs).detach()

    return straight_through


_PLAIN: Mapping[str, Estimator] = {
    "kl": _k1, "abs": _absolute, "mse": _k2, "low_var_kl": _k3,
    "k1": _k1, "k2": _k2, "k3": _k3,
}  # fmt: skip

KL_ESTIMATORS: Mapping[str, Estimator] = {
    **_PLAIN,
    **{f"{name}+": _with_gradient_of_k2(_PLAIN[name]) for name in _PLAIN},
}
"""The field's names, Schulman's (http://joschu.net/blog/kl-approx.html) for the same estimators,
and the straight-through forms."""

KL_NAMES = tuple(KL_ESTIMATORS)
"""actor.kl_loss_type takes any of these. A penalty in reward has no gradient, so a + changes
nothing there."""


def token_kl(logprobs: torch.Tensor, ref_logprobs: torch.Tensor, *, kind: str) -> torch.Tensor:
    """Return each token's KL estimate, same shape as the inputs, in nats. Gradients flow through
    both arguments.

    `kind` is a name in KL_ESTIMATORS. Another name raises ConfigError.
    """
    if kind not in KL_ESTIMATORS:
        raise ConfigError(
            f"KL estimator: nothing named '{kind}'{did_you_mean(kind, list(KL_ESTIMATORS))}"
        )
    return KL_ESTIMATORS[kind](logprobs, ref_logprobs)


class KLController:
    """The coefficient for the KL penalty in reward: fixed, or moved towards a target KL
    (arXiv:1909.08593, section 2.2).

        e = clip(KL / target - 1, -0.2, 0.2)
        coefficient <- coefficient * (1 + e * min(num_responses / horizon, 1))

    The paper writes the gain as a constant (0.1). Tying the gain to the number of responses, as the
    paper's released code does, makes the speed independent of the batch size. Departures: the gain
    is at most 1, so that one step moves the coefficient by at most a fifth (the released code's
    factor reaches 0 at five horizons, and a coefficient of 0 never moves again), and the
    coefficient stays at or above 1e-4 kl_coef.

    Raises ConfigError for an unknown type or a non-positive horizon, target or starting
    coefficient.
    """

    def __init__(self, settings: KLControlConfig) -> None:
        problems = [
            *field_problems(settings, "algorithm.kl_ctrl."),
            *kl_control_problems(settings),
        ]
        if problems:
            raise ConfigError(problems)
        self._settings = settings
        self.coefficient = float(settings.kl_coef)

    def update(self, kl: float, *, num_responses: int) -> None:
        """Move the coefficient by the last step's mean KL, over `num_responses` responses. The
        coefficient does not move if it is fixed, or if the KL is NaN."""
        if self._settings.type == "fixed" or math.isnan(kl):
            return
        error = kl / self._settings.target_kl - 1
        error = min(max(error, -PROPORTIONAL_ERROR_BOUND), PROPORTIONAL_ERROR_BOUND)
        gain = min(num_responses / self._settings.horizon, 1.0)
        self._set(self.coefficient * (1 + error * gain))

    def _set(self, coefficient: float) -> None:
        self.coefficient = max(coefficient, LOWEST_COEFFICIENT_SHARE * self._settings.kl_coef)

    def state_dict(self) -> dict[str, float]:
        """Return the state for a checkpoint: {"coefficient": float}."""
        return {"coefficient": self.coefficient}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore the coefficient. A fixed coefficient keeps its configured value, so that a
        restart can change it."""
        if self._settings.type == "adaptive":
            self._set(float(state["coefficient"]))

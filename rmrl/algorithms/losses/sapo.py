"""SAPO: a soft gate instead of the clip (arXiv:2511.20347).

    loss = -A * f(r),    f(r) = 4 / tau * sigmoid(tau * (r - 1)),    tau = tau_pos where A > 0,
      tau_neg elsewhere

On policy f has slope 1, so this is the policy gradient. It fades smoothly as r leaves 1, faster for
a larger tau. The paper sets tau_neg above tau_pos (1.05 and 1.0), because pushing a token down
moves probability to every other token. Use with loss_agg_mode=seq-mean-token-mean. Departure: log r
is bounded to [-20, 20] before the exponential.
"""

from __future__ import annotations

import torch

from rmrl.algorithms.losses.ratio import keep_counted, log_ratio, ratio_sums
from rmrl.config.schema.actor import ActorConfig
from rmrl.errors import ConfigError
from rmrl.types import LossInputs


def sapo(
    inputs: LossInputs, *, settings: ActorConfig
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Per-token loss [B, T], 0 outside the mask, and sums over counted tokens. Raises ConfigError
    for a temperature that is not above 0."""
    tau_pos = settings.policy_loss.tau_pos
    tau_neg = settings.policy_loss.tau_neg
    for name, tau in (("tau_pos", tau_pos), ("tau_neg", tau_neg)):
        if tau <= 0:
            raise ConfigError(
                f"actor_rollout_ref.actor.policy_loss.{name}={tau}: the gate's temperature must be"
                " above 0, e.g. 1.0"
            )
    advantages_BT = keep_counted(inputs.advantages_BT, inputs.mask_BT)
    log_ratio_BT = log_ratio(inputs)
    tau_BT = torch.where(advantages_BT > 0, tau_pos, tau_neg)
    gate_BT = 4 / tau_BT * (tau_BT * log_ratio_BT.expm1()).sigmoid()
    return -advantages_BT * gate_BT, ratio_sums(log_ratio_BT, inputs.mask_BT)

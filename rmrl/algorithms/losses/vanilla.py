"""PPO's clipped loss with separate bounds and the dual clip.

    r = pi_new / pi_old
    loss = max(-A r, -A clip(r, 1 - low, 1 + high))          arXiv:1707.06347, eq. 7; low != high as
      in DAPO, arXiv:2503.14476
    where A < 0:  loss = min(loss, -A c)                     dual clip with c > 1, arXiv:1912.09729

Departures: log r is bounded to [-20, 20] before the exponential. The loss is per token, its mean is
  `aggregate`'s business.
"""

from __future__ import annotations

import torch

from rmrl.algorithms.losses.ratio import (
    clip_range,
    counted_sum,
    keep_counted,
    log_ratio,
    ratio_sums,
)
from rmrl.config.schema.actor import ActorConfig
from rmrl.errors import ConfigError
from rmrl.types import LossInputs


def vanilla(
    inputs: LossInputs, *, settings: ActorConfig
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Per-token loss [B, T], 0 outside the mask, and sums over counted tokens.

    `clip_fraction` counts tokens that lost their gradient to the PPO clip, `clip_fraction_low`
    those that lost it to the dual clip. Raises ConfigError when clip_ratio_c is not above 1.
    """
    if settings.clip_ratio_c <= 1:
        raise ConfigError(
            f"actor_rollout_ref.actor.clip_ratio_c={settings.clip_ratio_c}: the dual clip needs a"
            " bound above 1, e.g. 3.0"
        )
    mask_BT = inputs.mask_BT
    advantages_BT = keep_counted(inputs.advantages_BT, mask_BT)
    log_ratio_BT = log_ratio(inputs)
    ratio_BT = log_ratio_BT.exp()
    free_BT = -advantages_BT * ratio_BT
    clipped_BT = -advantages_BT * ratio_BT.clamp(*clip_range(settings))
    ppo_BT = torch.maximum(free_BT, clipped_BT)
    bound_BT = -advantages_BT * settings.clip_ratio_c
    negative_BT = advantages_BT < 0
    loss_BT = torch.where(negative_BT, torch.minimum(ppo_BT, bound_BT), ppo_BT)
    metrics = {
        "clip_fraction": counted_sum(clipped_BT > free_BT, mask_BT),
        "clip_fraction_low": counted_sum(negative_BT & (ppo_BT > bound_BT), mask_BT),
        **ratio_sums(log_ratio_BT, mask_BT),
    }
    return loss_BT, metrics

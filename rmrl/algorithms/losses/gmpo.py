"""GMPO: the geometric mean of a sequence's ratios, each bounded first (arXiv:2507.20673).

    l_t  = log pi_new - log pi_old,    bounded on one side:  min(l_t, high) where A > 0,  max(l_t,
      -low) elsewhere
    loss = -A * exp(mean over t of l_t)

The same value on every token in the sequence. A token beyond its bound has no gradient. The bounds
are in log space: the paper's (e^-0.4, e^0.4) is clip_ratio=0.4, with
loss_agg_mode=seq-mean-token-mean. Departures: written per token as GSPO-token is (the mean
detached, the token's own gradient added), which has the same value and gradient and also takes
advantages that differ within a sequence; token log ratios are bounded to [-20, 20].
"""

from __future__ import annotations

import torch

from rmrl.algorithms.losses.ratio import (
    clip_bounds,
    counted_sum,
    keep_counted,
    log_ratio,
    ratio_sums,
)
from rmrl.config.schema.actor import ActorConfig
from rmrl.types import LossInputs


def gmpo(
    inputs: LossInputs, *, settings: ActorConfig
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Per-token loss [B, T], 0 outside the mask, and sums over counted tokens (`clip_fraction`:
    tokens beyond their bound)."""
    mask_BT = inputs.mask_BT
    advantages_BT = keep_counted(inputs.advantages_BT, mask_BT)
    log_ratio_BT = log_ratio(inputs)
    low, high = clip_bounds(settings)
    bounded_BT = torch.where(
        advantages_BT > 0, log_ratio_BT.clamp(max=high), log_ratio_BT.clamp(min=-low)
    )
    mean_B1 = (bounded_BT * mask_BT).sum(1, keepdim=True) / mask_BT.sum(1, keepdim=True).clamp(
        min=1
    )
    ratio_BT = (bounded_BT - bounded_BT.detach() + mean_B1.detach()).exp()
    metrics = {
        "clip_fraction": counted_sum(bounded_BT != log_ratio_BT, mask_BT),
        **ratio_sums(log_ratio_BT, mask_BT),
    }
    return -advantages_BT * ratio_BT, metrics

"""GSPO: one importance ratio per sequence (arXiv:2507.18071, section 4.3, GSPO-token).

    s_i   = exp(mean over t of (log pi_new - log pi_old))                length-normalised sequence
      ratio
    s_i,t = sg[s_i] * pi_new,t / sg[pi_new,t]                            same value, the token's own
      gradient
    loss  = max(-A s_i,t, -A clip(s_i,t, 1 - low, 1 + high))

Sequence ratios lie near 1, so the paper's clip is small: clip_ratio_low=3e-4 clip_ratio_high=4e-4,
with loss_agg_mode=seq-mean-token-mean.

LUSPO (arXiv:2602.05261) multiplies a response's term by its length, so that a long response is not
worth less per token: this loss with loss_agg_mode=seq-mean-token-sum, and the name luspo.

Departures: token log ratios are bounded to [-20, 20]; no dual clip.
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
from rmrl.types import LossInputs


def gspo(
    inputs: LossInputs, *, settings: ActorConfig
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Per-token loss [B, T], 0 outside the mask, and sums over counted tokens (`clip_fraction`,
    `ratio`, `kl`; the last two per token)."""
    mask_BT = inputs.mask_BT
    advantages_BT = keep_counted(inputs.advantages_BT, mask_BT)
    logprobs_BT = keep_counted(inputs.logprobs_BT, mask_BT)
    log_ratio_BT = log_ratio(inputs)
    sequence_B1 = (log_ratio_BT * mask_BT).sum(1, keepdim=True) / mask_BT.sum(
        1, keepdim=True
    ).clamp(min=1)
    ratio_BT = (logprobs_BT - logprobs_BT.detach() + sequence_B1.detach()).exp()
    free_BT = -advantages_BT * ratio_BT
    clipped_BT = -advantages_BT * ratio_BT.clamp(*clip_range(settings))
    metrics = {
        "clip_fraction": counted_sum(clipped_BT > free_BT, mask_BT),
        **ratio_sums(log_ratio_BT, mask_BT),
    }
    return torch.maximum(free_BT, clipped_BT), metrics

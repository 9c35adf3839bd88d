"""CISPO: clip the importance weight, keep every token's gradient (arXiv:2506.13585, section 3.1).

    loss = -sg[clip(r, 1 - low, 1 + high)] * A * log pi_new,        r = pi_new / pi_old

The paper leaves the lower side open; clip_ratio_low=1 does that. Departure: log r is bounded to
[-20, 20] before the exponential. This loss's value means nothing (it is a surrogate for its
gradient).
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


def cispo(
    inputs: LossInputs, *, settings: ActorConfig
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Per-token loss [B, T], 0 outside the mask, and sums; `clip_fraction` counts tokens whose
    weight was bounded."""
    mask_BT = inputs.mask_BT
    advantages_BT = keep_counted(inputs.advantages_BT, mask_BT)
    logprobs_BT = keep_counted(inputs.logprobs_BT, mask_BT)
    log_ratio_BT = log_ratio(inputs).detach()
    ratio_BT = log_ratio_BT.exp()
    weight_BT = ratio_BT.clamp(*clip_range(settings))
    metrics = {
        "clip_fraction": counted_sum(weight_BT != ratio_BT, mask_BT),
        **ratio_sums(log_ratio_BT, mask_BT),
    }
    return -weight_BT * advantages_BT * logprobs_BT, metrics

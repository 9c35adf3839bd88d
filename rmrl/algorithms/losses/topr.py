"""TOPR: good responses train as they are, bad ones by a truncated ratio (arXiv:2503.14286, its
canonical bounds).

    loss = -sg[w] * A * log pi_new,    w = 1 where A >= 0,    w = min(r, 1) elsewhere
    r    = product over the response of pi_new / mu

A response with A < 0 that the policy no longer gives has no weight left, so nothing drives its
probability to 0. One with A >= 0 trains however unlikely it has become. mu is the policy that
sampled, as in `dppo`: the rollout engine's log-probabilities where the batch has them and no
rollout correction weighs it. Departures: the advantage replaces the paper's reward minus a constant
baseline; log r is bounded to [-20, 20] per token and for the product. This loss's value means
nothing (it is a surrogate for its gradient).
"""

from __future__ import annotations

import torch

from rmrl.algorithms.losses.ratio import (
    against_sampler,
    counted_sum,
    keep_counted,
    log_ratio,
    ratio_sums,
    sequence_log_ratio,
)
from rmrl.config.schema.actor import ActorConfig
from rmrl.types import LossInputs


def topr(
    inputs: LossInputs,
    *,
    settings: ActorConfig,  # noqa: ARG001
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Per-token loss [B, T], 0 outside the mask, and sums over counted tokens; `clip_fraction`
    counts tokens with A < 0 whose weight is below 1."""
    mask_BT = inputs.mask_BT
    advantages_BT = keep_counted(inputs.advantages_BT, mask_BT)
    logprobs_BT = keep_counted(inputs.logprobs_BT, mask_BT)
    log_ratio_BT = log_ratio(against_sampler(inputs)).detach()
    tapered_B1 = sequence_log_ratio(log_ratio_BT).clamp(max=0).exp()
    weight_BT = torch.where(advantages_BT < 0, tapered_B1, 1.0)
    metrics = {
        "clip_fraction": counted_sum(weight_BT < 1, mask_BT),
        **ratio_sums(log_ratio_BT, mask_BT),
    }
    return -weight_BT * advantages_BT * logprobs_BT, metrics

"""IPO, INTELLECT Policy Optimization: tokens whose probability has moved have no policy gradient
(https://docs.primeintellect.ai/prime-rl/ipo).

    loss = -A * r * M + ipo_kl_coef * (log r)^2,    r = pi / mu
    M    = 0 where pi - mu > high or mu - pi > low, whatever sign A has

low and high are clip_ratio_low and clip_ratio_high, its eps; 0.3 there and in our recipe. It is the
total variation mask of DPPO (arXiv:2602.04879) without the question whether the update leads away,
and with a quadratic pull on every token, masked or not (1e-3, as in Kimi-K2.5). Masked tokens stay
in the divisor. pi and mu are the sampled token's probabilities; mu is the policy that sampled, as
in `dppo`. Departures: log r is bounded to [-20, 20]. With rollout correction r is pi_new / pi_old,
because its weights supply the rest.
"""

from __future__ import annotations

import torch

from rmrl.algorithms.losses.ratio import (
    against_sampler,
    clip_bounds,
    counted_sum,
    keep_counted,
    log_ratio,
    ratio_sums,
    sampled_logprobs,
)
from rmrl.config.schema.actor import ActorConfig
from rmrl.types import LossInputs


def ipo(
    inputs: LossInputs, *, settings: ActorConfig
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Per-token loss [B, T], 0 outside the mask, and sums over counted tokens; `clip_fraction`
    counts tokens with M = 0."""
    mask_BT = inputs.mask_BT
    advantages_BT = keep_counted(inputs.advantages_BT, mask_BT)
    log_ratio_BT = log_ratio(against_sampler(inputs))
    probability_BT = keep_counted(inputs.logprobs_BT.detach(), mask_BT).exp()
    moved_BT = probability_BT - keep_counted(sampled_logprobs(inputs), mask_BT).exp()
    low, high = clip_bounds(settings)
    blocked_BT = (moved_BT > high) | (moved_BT < -low)
    gain_BT = torch.where(blocked_BT, 0.0, advantages_BT * log_ratio_BT.exp())
    pull_BT = settings.policy_loss.ipo_kl_coef * log_ratio_BT.square()
    metrics = {
        "clip_fraction": counted_sum(blocked_BT, mask_BT),
        **ratio_sums(log_ratio_BT.detach(), mask_BT),
    }
    return pull_BT - gain_BT, metrics

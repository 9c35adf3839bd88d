"""DPPO: a bound on how far the token's distribution moves, not on its ratio (arXiv:2602.04879,
equations 11 to 14).

    loss = -A * min(r, c) * M,    gradient = -A * min(r, c) * M * grad log pi,    r = pi / mu
    M = 0 where the update would lead further away and is far enough:
        A > 0, pi > mu, D > high;  or  A < 0, pi < mu, D > low
    dppo_tv:  D = abs(pi - mu)
    dppo_kl:  D = mu log(mu / pi) + (1 - mu) log((1 - mu) / (1 - pi))

pi and mu are the sampled token's probabilities alone (the paper's binary approximation), so a rare
token may change its ratio freely and a likely one may not. mu is the policy that sampled, as the
paper asks: the rollout engine's log-probabilities where the batch has them, else the training
engine's before the update. low and high are clip_ratio_low and clip_ratio_high, e.g.
clip_ratio=0.15 for dppo_tv and 0.05 for dppo_kl. Departures: the cap c, which the paper's equations
do not have and the authors' code does. It is clip_ratio_c, 20 there and in our recipes, while the
key's own default is the dual clip's 3. It truncates a weight and does not clip: a token above it
keeps its gradient, scaled to c, whatever sign A has. With rollout correction r is pi_new / pi_old,
because its weights supply the rest; log r is bounded to [-20, 20].
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from rmrl.algorithms.losses.ratio import (
    LOG_RATIO_BOUND,
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

Terms = tuple[torch.Tensor, dict[str, torch.Tensor]]
SMALLEST_REST = 1e-6
"""Least probability of all other tokens together, so that the logarithm of the rest stays finite in
float32."""


def dppo_tv(inputs: LossInputs, *, settings: ActorConfig) -> Terms:
    """Total variation. Per-token loss [B, T], 0 outside the mask, and sums; `clip_fraction` counts
    tokens with M = 0."""
    return _masked_policy_gradient(inputs, settings, binary_tv)


def dppo_kl(inputs: LossInputs, *, settings: ActorConfig) -> Terms:
    """KL(mu || pi) instead of the total variation. See `dppo_tv`."""
    return _masked_policy_gradient(inputs, settings, binary_kl)


def binary_tv(logprobs: torch.Tensor, sampled_logprobs: torch.Tensor) -> torch.Tensor:
    """Total variation between two coins, in 0..1."""
    return (logprobs.exp() - sampled_logprobs.exp()).abs()


def binary_kl(logprobs: torch.Tensor, sampled_logprobs: torch.Tensor) -> torch.Tensor:
    """KL(sampled || new) between two coins, in nats, >= 0 up to rounding."""
    probability = logprobs.exp()
    sampled = sampled_logprobs.exp()
    rest = (1 - probability).clamp(min=SMALLEST_REST)
    sampled_rest = (1 - sampled).clamp(min=SMALLEST_REST)
    return (
        sampled * (sampled_logprobs - logprobs).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
        + sampled_rest * (sampled_rest / rest).log()
    )


def _masked_policy_gradient(
    inputs: LossInputs,
    settings: ActorConfig,
    divergence: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Terms:
    mask_BT = inputs.mask_BT
    advantages_BT = keep_counted(inputs.advantages_BT, mask_BT)
    log_ratio_BT = log_ratio(against_sampler(inputs))
    weight_BT = log_ratio_BT.detach().exp().clamp(max=settings.clip_ratio_c)
    logprobs_BT = keep_counted(inputs.logprobs_BT.detach(), mask_BT)
    sampled_BT = keep_counted(sampled_logprobs(inputs), mask_BT)
    low, high = clip_bounds(settings)
    distance_BT = divergence(logprobs_BT, sampled_BT)
    too_high_BT = (advantages_BT > 0) & (logprobs_BT > sampled_BT) & (distance_BT > high)
    too_low_BT = (advantages_BT < 0) & (logprobs_BT < sampled_BT) & (distance_BT > low)
    blocked_BT = too_high_BT | too_low_BT
    ratio_BT = weight_BT * (log_ratio_BT - log_ratio_BT.detach()).exp()
    metrics = {
        "clip_fraction": counted_sum(blocked_BT, mask_BT),
        **ratio_sums(log_ratio_BT, mask_BT),
    }
    return torch.where(blocked_BT, 0.0, -advantages_BT * ratio_BT), metrics

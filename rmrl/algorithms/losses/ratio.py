"""Shared by the policy losses: the ratio new / old policy, the clip range, sums over counted
tokens.

A loss's own file has only the equation. Everything here makes padding harmless: positions outside
the mask hold whatever the engine wrote (infinities included), so they are replaced by 0 before
anything is exponentiated, in value and in gradient.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from rmrl.config.schema.actor import ActorConfig
from rmrl.types import LossInputs

LOG_RATIO_BOUND = 20.0


def keep_counted(values_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """`values_BT` with exact zeros (and zero gradients) wherever the mask is 0."""
    return torch.where(mask_BT > 0, values_BT, torch.zeros_like(values_BT))


def log_ratio(inputs: LossInputs) -> torch.Tensor:
    """log pi_new - log pi_old per token, [B, T], in [-20, 20]; 0 outside the mask. Beyond the
    bounds the gradient is 0."""
    difference_BT = keep_counted(inputs.logprobs_BT - inputs.old_logprobs_BT, inputs.mask_BT)
    return difference_BT.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def sampled_logprobs(inputs: LossInputs) -> torch.Tensor:
    """[B, T]: log-probabilities under the policy that sampled: the rollout engine's where the batch
    has them, else the training engine's before the update."""
    if inputs.rollout_logprobs_BT is None:
        return inputs.old_logprobs_BT
    return inputs.rollout_logprobs_BT


def against_sampler(inputs: LossInputs) -> LossInputs:
    """`inputs` with the policy that sampled as the old one, for losses that correct for it
    themselves. Unchanged with rollout correction's weights, which supply that part."""
    if inputs.rollout_weights_BT is not None:
        return inputs
    return replace(inputs, old_logprobs_BT=sampled_logprobs(inputs))


def sequence_log_ratio(log_ratio_BT: torch.Tensor) -> torch.Tensor:
    """A row's ratios, multiplied, as a logarithm, [B, 1], in [-20, 20]. `log_ratio_BT` is 0 outside
    the mask."""
    return log_ratio_BT.sum(dim=1, keepdim=True).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def clip_bounds(settings: ActorConfig) -> tuple[float, float]:
    """How far the policy may move down and up, e.g. (0.2, 0.2), in the loss's units."""
    low = settings.clip_ratio if settings.clip_ratio_low is None else settings.clip_ratio_low
    high = settings.clip_ratio if settings.clip_ratio_high is None else settings.clip_ratio_high
    return low, high


def clip_range(settings: ActorConfig) -> tuple[float, float]:
    """Smallest and largest ratio that still has a gradient, e.g. (0.8, 1.2)."""
    low, high = clip_bounds(settings)
    return 1 - low, 1 + high


def counted_sum(values_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """Sum over counted tokens in float64, a scalar without gradient; booleans count as 0 and 1.

    float64, so that row order and the cut into micro-batches change no significant digit.
    """
    return keep_counted(values_BT.detach().double(), mask_BT).mul(mask_BT).sum()


def ratio_sums(log_ratio_BT: torch.Tensor, mask_BT: torch.Tensor) -> dict[str, torch.Tensor]:
    """Sums of `ratio` (new / old) and `kl`, the k3 estimate of KL(old || new): how far the new
    policy is from the sampling policy."""
    return {
        "ratio": counted_sum(log_ratio_BT.exp(), mask_BT),
        "kl": counted_sum(log_ratio_BT.expm1() - log_ratio_BT, mask_BT),
    }

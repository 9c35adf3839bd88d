"""Tokens without a policy loss, chosen in training's forward pass. They stay in loss_agg_mode's
divisor, and keep their KL and entropy terms.

    top_entropy_quantile       a token trains where H >= the quantile 1 - share of the entropies of
                               the micro-batch (arXiv:2506.01939, which takes it over the whole
                               batch)
    off_policy_mask_threshold  a response with A < 0 trains where the mean over its tokens of
                               log mu - log pi_new <= delta (DeepSeek-V3.2, arXiv:2512.02556,
                               equation 9); mu is the policy that sampled

The entropies are the trained policy's. The quantile is interpolated between two tokens. Where
several have its entropy, all of them train. Departure: A is a token's own, so that advantages which
differ within a response mask its negative tokens alone.
"""

from __future__ import annotations

import torch

from rmrl.algorithms.losses.ratio import counted_sum, keep_counted, sampled_logprobs
from rmrl.config.schema.actor import ActorConfig
from rmrl.errors import ConfigError
from rmrl.types import LossInputs


def policy_mask(
    inputs: LossInputs, settings: ActorConfig
) -> tuple[torch.Tensor | None, dict[str, torch.Tensor]]:
    """bool [B, T], True where the policy loss counts, and sums over counted tokens (`low_entropy`,
    `off_policy`: tokens masked). None where nothing is configured.

    Raises ConfigError where the tokens' entropy is needed and missing.
    """
    kept_BT: torch.Tensor | None = None
    sums: dict[str, torch.Tensor] = {}
    if settings.top_entropy_quantile < 1:
        kept_BT = high_entropy(inputs, settings.top_entropy_quantile)
        sums["low_entropy"] = counted_sum(~kept_BT, inputs.mask_BT)
    if settings.off_policy_mask_threshold is not None:
        near_BT = near_the_sampler(inputs, settings.off_policy_mask_threshold)
        sums["off_policy"] = counted_sum(~near_BT, inputs.mask_BT)
        kept_BT = near_BT if kept_BT is None else kept_BT & near_BT
    return kept_BT, sums


def high_entropy(inputs: LossInputs, share: float) -> torch.Tensor:
    """bool [B, T]: counted tokens whose entropy is at or above its quantile 1 - `share`."""
    if inputs.entropy_BT is None:
        raise ConfigError(
            f"actor_rollout_ref.actor.top_entropy_quantile={share:g} needs the entropy of each"
            " token, but the training engine gave none: compute entropy_BT, or set"
            " top_entropy_quantile=1"
        )
    counted_BT = inputs.mask_BT > 0
    entropy_BT = inputs.entropy_BT.detach().float()
    counted_N = entropy_BT[counted_BT].sort().values
    if not len(counted_N):
        return counted_BT
    position = (1 - share) * (len(counted_N) - 1)
    below = int(position)
    above = min(below + 1, len(counted_N) - 1)
    threshold = counted_N[below].lerp(counted_N[above], position - below)
    return counted_BT & (entropy_BT >= threshold)


def near_the_sampler(inputs: LossInputs, threshold: float) -> torch.Tensor:
    """bool [B, T]: tokens with A >= 0, and all in responses within `threshold` nats per token from
    the policy that sampled."""
    mask_BT = inputs.mask_BT
    distance_BT = keep_counted(sampled_logprobs(inputs) - inputs.logprobs_BT.detach(), mask_BT)
    lengths_B1 = (mask_BT > 0).sum(dim=1, keepdim=True).clamp(min=1)
    mean_B1 = distance_BT.sum(dim=1, keepdim=True) / lengths_B1
    return (keep_counted(inputs.advantages_BT, mask_BT) >= 0) | (mean_B1 <= threshold)

"""FIPO: PPO with each token's advantage weighted by what follows it in its response
(arXiv:2603.19835).

    F_t  = sum over k >= t of gamma^(k - t) * l_k,    l_k = log pi_new - log pi_old
    f_t  = sg[clip(exp(F_t), fipo_weight_low, fipo_weight_high)]
    loss = PPO's with A_t * f_t in place of A_t       gamma = 2^(-1 / fipo_half_life)

A token after which the response becomes likelier counts more. Tokens with a ratio above
clip_ratio_c, the dual clip's bound, do not count in F. Where A < 0 and the token's ratio lies above
fipo_safe_ratio, f is bounded to [0.8, 1]. The authors' run with 32 billion parameters has a
half-life of 32 tokens, weights from 1 to 1.2, a safe ratio of 10 and clip_ratio_c=10. Departures:
log r is bounded to [-20, 20]. A token outside the mask is passed over: it adds nothing to F, whose
decay takes no step there.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from rmrl.algorithms.losses.ratio import counted_sum, keep_counted, log_ratio
from rmrl.algorithms.losses.vanilla import vanilla
from rmrl.config.schema.actor import ActorConfig
from rmrl.errors import ConfigError
from rmrl.types import LossInputs

CHUNK = 128
"""Tokens of a response whose sums are one matrix product."""
SAFE_WEIGHTS = (0.8, 1.0)


def fipo(
    inputs: LossInputs, *, settings: ActorConfig
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Per-token loss [B, T], 0 outside the mask, and sums over counted tokens; `influence` is f.

    Raises ConfigError where fipo_weight_low is above fipo_weight_high.
    """
    choice = settings.policy_loss
    if choice.fipo_weight_low > choice.fipo_weight_high:
        raise ConfigError(
            f"actor_rollout_ref.actor.policy_loss.fipo_weight_low={choice.fipo_weight_low:g} is"
            f" above fipo_weight_high={choice.fipo_weight_high:g}: give a low bound at or below the"
            " high one, e.g. 1.0 and 1.2"
        )
    advantages_BT = keep_counted(inputs.advantages_BT, inputs.mask_BT)
    log_ratio_BT = log_ratio(inputs).detach()
    ratio_BT = log_ratio_BT.exp()
    counted_BT = torch.where(ratio_BT > settings.clip_ratio_c, 0.0, log_ratio_BT)
    # counted tokens first, so that holes are no steps
    order_BT = (inputs.mask_BT > 0).int().argsort(dim=1, descending=True, stable=True)
    ordered_BT = discounted_future(
        counted_BT.gather(1, order_BT), gamma=2 ** (-1 / choice.fipo_half_life)
    )
    future_BT = torch.zeros_like(counted_BT).scatter(1, order_BT, ordered_BT)
    weight_BT = future_BT.exp().clamp(choice.fipo_weight_low, choice.fipo_weight_high)
    unsafe_BT = (advantages_BT < 0) & (ratio_BT > choice.fipo_safe_ratio)
    weight_BT = torch.where(unsafe_BT, weight_BT.clamp(*SAFE_WEIGHTS), weight_BT)
    weighted = replace(inputs, advantages_BT=advantages_BT * weight_BT)
    loss_BT, metrics = vanilla(weighted, settings=settings)
    return loss_BT, {**metrics, "influence": counted_sum(weight_BT, inputs.mask_BT)}


def discounted_future(values_BT: torch.Tensor, *, gamma: float) -> torch.Tensor:
    """Sum over k >= t of gamma^(k - t) * values_k, [B, T].

    One matrix product per CHUNK columns, from the last to the first: a walk over the columns would
    start as many kernels as the longest response has tokens.
    """
    length = values_BT.shape[1]
    steps_C = torch.arange(CHUNK, device=values_BT.device, dtype=values_BT.dtype)
    distance_CC = steps_C[None, :] - steps_C[:, None]
    decay_CC = torch.where(distance_CC >= 0, gamma ** distance_CC.clamp(min=0), 0.0)
    sums: list[torch.Tensor] = []
    next_B1 = torch.zeros_like(values_BT[:, :1]).sum(dim=1, keepdim=True)
    for start in reversed(range(0, length, CHUNK)):
        chunk_BC = values_BT[:, start : start + CHUNK]
        width = chunk_BC.shape[1]
        to_next_C = gamma ** (width - steps_C[:width])
        future_BC = chunk_BC @ decay_CC[:width, :width].T + next_B1 * to_next_C
        sums.append(future_BC)
        next_B1 = future_BC[:, :1]
    return torch.cat([values_BT[:, :0], *reversed(sums)], dim=1)

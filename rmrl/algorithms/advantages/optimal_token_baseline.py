"""OTB: at each token the group baseline with the least variance, by the energy that the responses
have spent so far (arXiv:2602.07078).

    w_i,t = 1 - 2 pi(y_i,t) + sum_v pi(v)^2            a token's energy, `energies_BT`
    W_i,t = sum over j <= t of rho_i,j^2 w_i,j         rho: rollout correction's weight, or 1
    B_t   = sum_i W_i,t G_i,t / sum_i W_i,t            over the responses to the same prompt that
                                                       have a token t
    A_i,t = G_i,t - B_t                                G: return from token t on, discounted by
                                                       algorithm.gamma

w is the squared length that log pi(y)'s gradient has at the logits, which the paper takes in place
of all weights' gradient (its logit-gradient proxy). A token with weight rho has the energy rho^2 w,
as in the authors' code in verl. The formula beside that code has rho_i,t^2 in front of the sum
instead.

t counts the tokens inside the mask: what stands between two turns is passed over (in verl
tir_optimal_token_baseline). Departures: beyond the second longest response there is nothing to
compare with, and the longest one keeps the last baseline that there was (verl: 0, so that a
constant added to all rewards changes its advantages). A single response has advantage 0 (verl: its
return), and so has a group whose returns are equal up to rounding. Where no response has spent any
energy, the baseline is the plain mean (verl: 1e-8 beside the sum, so that it is 0).
"""

from __future__ import annotations

import torch

from rmrl.algorithms.advantages.reinforce_plus_plus import discounted_returns
from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.algorithms.groups import constant_fraction, group_statistics
from rmrl.algorithms.masking import masked_mean, rounding_floor
from rmrl.algorithms.rewards import sequence_rewards, token_rewards
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.errors import ConfigError
from rmrl.types import AdvantageInputs, Advantages

NO_ENERGY = 1e-9
"""Energies up to this are rounding: tokens that were certain."""


@estimator(group=True, energies=True)
def optimal_token_baseline(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """Returns over the energy-weighted baseline of each token; `otb/energy` is the mean of w, 0..2.
    Raises ConfigError without `energies_BT`."""
    if inputs.energies_BT is None:
        raise ConfigError(
            "algorithm.adv_estimator=optimal_token_baseline needs the energy of each token, but the"
            " batch has none: they come with the old log-probabilities"
            " (algorithm.rollout_correction.bypass_mode=False); or use adv_estimator=opo, whose"
            " weights are lengths"
        )
    mask_BT = inputs.response_mask_BT
    returns_BT = discounted_returns(token_rewards(inputs), mask_BT, gamma=settings.gamma)
    energies_BT = inputs.energies_BT
    if inputs.rollout_weights_BT is not None:
        energies_BT = energies_BT * inputs.rollout_weights_BT.square()
    advantages_BT = torch.zeros_like(returns_BT)
    for group in torch.unique(inputs.group_ids_B).tolist():
        rows = torch.nonzero(inputs.group_ids_B == group)[:, 0]
        advantages_BT[rows] = _of_group(returns_BT[rows], energies_BT[rows], mask_BT[rows] > 0)
    statistics = group_statistics(sequence_rewards(inputs), inputs.group_ids_B)
    metrics = {
        **advantage_metrics(advantages_BT, mask_BT),
        "group/constant_fraction": constant_fraction(statistics),
        "otb/energy": masked_mean(inputs.energies_BT, mask_BT).item(),
    }
    return Advantages(advantages_BT=advantages_BT, metrics=metrics)


def _of_group(
    returns_NT: torch.Tensor, energies_NT: torch.Tensor, counts_NT: torch.Tensor
) -> torch.Tensor:
    """Advantages for the N responses to one prompt [N, T], 0 where `counts_NT` is False."""
    lengths_N = counts_NT.sum(dim=1)
    compared = int(lengths_N.sort(descending=True).values[1]) if len(lengths_N) > 1 else 0
    if not compared:
        return torch.zeros_like(returns_NT)
    # counted tokens first, so that column t holds each response's token t
    order_NT = counts_NT.int().argsort(dim=1, descending=True, stable=True)
    counted_NT = counts_NT.gather(1, order_NT)
    values_NT = torch.where(counted_NT, returns_NT.gather(1, order_NT), 0.0).double()
    spent_NT = torch.where(counted_NT, energies_NT.gather(1, order_NT), 0.0).double().cumsum(dim=1)
    weights_NT = torch.where(counted_NT, spent_NT, 0.0)
    known_T = weights_NT.sum(dim=0) > NO_ENERGY
    weights_NT = torch.where(known_T, weights_NT, counted_NT.double())
    baseline_T = (weights_NT * values_NT).sum(dim=0) / weights_NT.sum(dim=0).clamp(min=NO_ENERGY)
    baseline_T[compared:] = baseline_T[compared - 1]
    advantages_NT = torch.where(counted_NT, values_NT - baseline_T, 0.0)
    rounding = advantages_NT.abs() <= rounding_floor(values_NT.abs().max())
    advantages_NT = advantages_NT.masked_fill(rounding, 0.0).to(returns_NT.dtype)
    return torch.zeros_like(returns_NT).scatter_(1, order_NT, advantages_NT)

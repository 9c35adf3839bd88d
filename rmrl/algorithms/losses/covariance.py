"""Clip-Cov and KL-Cov: hold back the few tokens that make the policy's entropy collapse
(arXiv:2505.22617).

    cov_t = (log pi_t - mean(log pi)) * (A_t - mean(A))          means over counted tokens

Training on a likely token with a high advantage, or on an unlikely one with a low advantage, lowers
the entropy.

    clip_cov:  PPO's clipped loss; of the tokens with lb < cov < ub, a share clip_cov_ratio of all
               tokens, at random, has no gradient
    kl_cov:    -A r, without a clip; the share kl_cov_ratio of all tokens with the largest cov gets
               + ppo_kl_coef * abs(log r)

Means, counts and the choice are those of the micro-batch at hand, the only tokens that a loss sees:
results depend on how a batch is cut.

Departures: a small micro-batch's share is seldom whole, so it is rounded up or down at random such
that the expected share is exact however the batch is cut (the authors take at least one token of
every micro-batch). Everything random comes from a generator seeded with the log-probabilities
themselves, so equal inputs give equal results, in whatever order the rows stand, and no other
random state is used. Tokens whose covariance is equal are drawn at random; clip_cov keeps PPO's
clip, as the authors' code does; log r is bounded to [-20, 20]; no dual clip. abs(log r), as in the
authors' code, replaces the paper's KL.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rmrl.algorithms.descriptors import policy_loss
from rmrl.algorithms.losses.ratio import (
    clip_range,
    counted_sum,
    keep_counted,
    log_ratio,
    ratio_sums,
)
from rmrl.algorithms.masking import masked_mean
from rmrl.config.schema.actor import ActorConfig
from rmrl.types import LossInputs

Terms = tuple[torch.Tensor, dict[str, torch.Tensor]]


@policy_loss(depends_on_cut=True)
def clip_cov(inputs: LossInputs, *, settings: ActorConfig) -> Terms:
    """Per-token loss [B, T], 0 outside the mask and where it was dropped, and sums;
    `covariance_fraction` counts the tokens dropped."""
    mask_BT = inputs.mask_BT
    choice = settings.policy_loss
    advantages_BT = keep_counted(inputs.advantages_BT, mask_BT)
    log_ratio_BT = log_ratio(inputs)
    ratio_BT = log_ratio_BT.exp()
    free_BT = -advantages_BT * ratio_BT
    clipped_BT = -advantages_BT * ratio_BT.clamp(*clip_range(settings))
    covariance_BT = covariance(inputs)
    beyond_BT = clipped_BT > free_BT
    candidates_BT = (
        (mask_BT > 0)
        & ~beyond_BT
        & (covariance_BT > choice.clip_cov_lb)
        & (covariance_BT < choice.clip_cov_ub)
    )
    generator = generator_of(inputs)
    order_BT = _random_numbers(inputs, generator)
    count = _share(choice.clip_cov_ratio, mask_BT, generator)
    dropped_BT = _largest(candidates_BT, (order_BT,), count=count)
    metrics = {
        "clip_fraction": counted_sum(beyond_BT, mask_BT),
        "covariance_fraction": counted_sum(dropped_BT, mask_BT),
        **ratio_sums(log_ratio_BT, mask_BT),
    }
    return torch.where(dropped_BT, 0.0, torch.maximum(free_BT, clipped_BT)), metrics


@policy_loss(depends_on_cut=True)
def kl_cov(inputs: LossInputs, *, settings: ActorConfig) -> Terms:
    """Per-token loss [B, T], 0 outside the mask, and sums; `covariance_fraction` counts the tokens
    with a penalty."""
    mask_BT = inputs.mask_BT
    choice = settings.policy_loss
    advantages_BT = keep_counted(inputs.advantages_BT, mask_BT)
    log_ratio_BT = log_ratio(inputs)
    generator = generator_of(inputs)
    count = _share(choice.kl_cov_ratio, mask_BT, generator)
    keys = (covariance(inputs), _random_numbers(inputs, generator))
    chosen_BT = _largest(mask_BT > 0, keys, count=count)
    penalty_BT = torch.where(chosen_BT, choice.ppo_kl_coef * log_ratio_BT.abs(), 0.0)
    metrics = {
        "covariance_fraction": counted_sum(chosen_BT, mask_BT),
        **ratio_sums(log_ratio_BT, mask_BT),
    }
    return penalty_BT - advantages_BT * log_ratio_BT.exp(), metrics


def covariance(inputs: LossInputs) -> torch.Tensor:
    """cov_t from the equation above, [B, T] without gradient; 0 outside the mask."""
    mask_BT = inputs.mask_BT
    logprobs_BT = inputs.logprobs_BT.detach()
    centred_logprobs_BT = logprobs_BT - masked_mean(logprobs_BT, mask_BT)
    centred_advantages_BT = inputs.advantages_BT - masked_mean(inputs.advantages_BT, mask_BT)
    centred_BT = centred_logprobs_BT * centred_advantages_BT
    return keep_counted(centred_BT, mask_BT)


def generator_of(inputs: LossInputs) -> torch.Generator:
    """A generator on the CPU, seeded with the counted log-probabilities' bits.

    Padding, row order and earlier draws do not matter.
    """
    return torch.Generator().manual_seed(int(_row_keys(inputs).sum()))


def _row_keys(inputs: LossInputs) -> torch.Tensor:
    """int64 [B]: a row's counted log-probabilities as one number, the same wherever the row
    stands."""
    bits_BT = inputs.logprobs_BT.detach().float().contiguous().view(torch.int32).long()
    positions_T = torch.arange(1, bits_BT.shape[1] + 1, device=bits_BT.device)
    return torch.where(inputs.mask_BT > 0, bits_BT * positions_T, 0).sum(dim=1)


def _random_numbers(inputs: LossInputs, generator: torch.Generator) -> torch.Tensor:
    """[B, T] in 0..1, 0 outside the mask.

    Dealt out in row key order, so that a row has the same numbers wherever it stands.
    """
    rows_B = _row_keys(inputs).argsort()
    counted_BT = inputs.mask_BT[rows_B] > 0
    dealt_BT = torch.zeros_like(inputs.mask_BT)
    dealt_BT[counted_BT] = torch.rand(int(counted_BT.sum()), generator=generator).to(dealt_BT)
    return torch.zeros_like(dealt_BT).index_copy(0, rows_B, dealt_BT)


def _share(ratio: float, mask_BT: torch.Tensor, generator: torch.Generator) -> int:
    """`ratio` of the counted tokens as a whole number: the expected one is exact, whatever the
    number of tokens."""
    exact = ratio * float((mask_BT > 0).sum())
    return int(exact + float(torch.rand((), generator=generator, dtype=torch.float64)))


def _largest(
    candidates_BT: torch.Tensor, keys: Sequence[torch.Tensor], *, count: int
) -> torch.Tensor:
    """bool [B, T]: the `count` largest candidates, or all of them, by the first key [B, T] and ties
    by the next one."""
    chosen_BT = torch.zeros_like(candidates_BT)
    places = candidates_BT.flatten().nonzero()[:, 0]
    for key_BT in reversed(keys):
        order = key_BT.flatten()[places].argsort(descending=True, stable=True)
        places = places[order]
    chosen_BT.view(-1)[places[:count]] = True
    return chosen_BT

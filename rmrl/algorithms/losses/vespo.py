"""VESPO: a smooth weight by the whole response's ratio, instead of a clip (arXiv:2602.10693).

    loss   = -sg[phi(w)] * A * log pi_new,    w = product over the response of pi_new / mu
    phi(w) = w^k * exp(lambda * (1 - w))

phi(1) = 1. It falls to 0 on both sides, with its largest value at w = k / lambda. k and lambda are
policy_loss.vespo_k_pos and vespo_lambda_pos where A >= 0 (2 and 3), vespo_k_neg and
vespo_lambda_neg elsewhere (3 and 2): a good response that has become likelier counts less at once,
a bad one that has become unlikelier. No length normalisation. mu is the policy that sampled, as in
`dppo`. Departures: log w is bounded to [-20, 20], per token and for the product (the authors' code
bounds w from below at 1e-8, which is about -18.4). With rollout correction w is pi_new / pi_old,
because its weights supply the rest. This loss's value means nothing (it is a surrogate for its
gradient).
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


def vespo(
    inputs: LossInputs, *, settings: ActorConfig
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Per-token loss [B, T], 0 outside the mask, and sums over counted tokens; `sequence_weight`
    is phi."""
    mask_BT = inputs.mask_BT
    choice = settings.policy_loss
    advantages_BT = keep_counted(inputs.advantages_BT, mask_BT)
    logprobs_BT = keep_counted(inputs.logprobs_BT, mask_BT)
    log_ratio_BT = log_ratio(against_sampler(inputs)).detach()
    log_w_B1 = sequence_log_ratio(log_ratio_BT)
    good_BT = advantages_BT >= 0
    k_BT = torch.where(good_BT, choice.vespo_k_pos, choice.vespo_k_neg)
    lambda_BT = torch.where(good_BT, choice.vespo_lambda_pos, choice.vespo_lambda_neg)
    # expm1: exactly 0 at w = 1
    weight_BT = (k_BT * log_w_B1 - lambda_BT * log_w_B1.expm1()).exp()
    metrics = {
        "sequence_weight": counted_sum(weight_BT, mask_BT),
        **ratio_sums(log_ratio_BT, mask_BT),
    }
    return -weight_BT * advantages_BT * logprobs_BT, metrics

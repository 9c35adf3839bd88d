"""DRO: the policy gradient with a quadratic pull back to the policy that sampled
(arXiv:2405.19107).

    loss = -(A * log pi_new - beta / 2 * (log pi_new - log pi_old)^2)

Neither ratio nor clip: the gradient, -(A - beta * log r), vanishes where log r = A / beta, the
KL-regularised objective's optimum. beta is policy_loss.dro_beta, the paper's tau. Departures: the
paper's residual r - V - tau log r is over whole responses, ours over tokens with the advantage
instead of r - V, and divided by tau. The anchor is the policy that sampled, not a fixed reference.
This loss's value means nothing (it is a surrogate).
"""

from __future__ import annotations

import torch

from rmrl.algorithms.losses.ratio import keep_counted, log_ratio, ratio_sums
from rmrl.config.schema.actor import ActorConfig
from rmrl.types import LossInputs


def dro(
    inputs: LossInputs, *, settings: ActorConfig
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Per-token loss [B, T], 0 outside the mask, and sums over counted tokens; log r beyond [-20,
    20] is bounded in the penalty."""
    mask_BT = inputs.mask_BT
    advantages_BT = keep_counted(inputs.advantages_BT, mask_BT)
    logprobs_BT = keep_counted(inputs.logprobs_BT, mask_BT)
    log_ratio_BT = log_ratio(inputs)
    penalty_BT = 0.5 * settings.policy_loss.dro_beta * log_ratio_BT.square()
    return penalty_BT - advantages_BT * logprobs_BT, ratio_sums(log_ratio_BT.detach(), mask_BT)

"""The plain policy gradient, REINFORCE (Williams, 1992); also GPG (arXiv:2504.02546), this loss
with adv_estimator=gpg.

    loss = -A * log pi_new

No importance ratio and no clip: right only while the policy is the one that sampled (ppo_epochs=1,
one mini-batch per step). This loss's value means nothing (it is a surrogate).
"""

from __future__ import annotations

import torch

from rmrl.algorithms.losses.ratio import keep_counted, log_ratio, ratio_sums
from rmrl.config.schema.actor import ActorConfig
from rmrl.types import LossInputs


def reinforce(
    inputs: LossInputs,
    *,
    settings: ActorConfig,  # noqa: ARG001
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Per-token loss [B, T], 0 outside the mask, and sums over counted tokens (`ratio`, `kl`: how
    stale the batch is)."""
    advantages_BT = keep_counted(inputs.advantages_BT, inputs.mask_BT)
    logprobs_BT = keep_counted(inputs.logprobs_BT, inputs.mask_BT)
    return -advantages_BT * logprobs_BT, ratio_sums(log_ratio(inputs).detach(), inputs.mask_BT)

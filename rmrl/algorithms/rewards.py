"""A response's token rewards and sequence rewards, and the KL penalty in reward.

"The mask" is the response mask throughout: rollout correction removes tokens from the losses, not
from the rewards.

The same rewards have two forms. Estimators over tokens (REINFORCE++, GAE) get the reward on the
last response token plus the token rewards. Estimators over sequences (GRPO, RLOO, ...) get the
reward plus all token rewards. So KL in reward and process rewards work with every estimator except
those with `token_rewards=False`, whose statistics such a sum would spoil.
"""

from __future__ import annotations

import torch

from rmrl.algorithms.kl import token_kl
from rmrl.errors import ConfigError
from rmrl.types import AdvantageInputs


def token_rewards(inputs: AdvantageInputs) -> torch.Tensor:
    """Return [B, T]: `token_rewards_BT` plus the reward on each row's last counted token, 0 outside
    the mask.

    The reward goes to the last counted token, not the last column: padding follows that token, and
    the mask may have holes. An empty row gets no reward.
    """
    mask_BT = inputs.response_mask_BT
    positions_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
    # no position without columns
    last_B1: torch.Tensor | int = -1
    if mask_BT.shape[1]:
        last_B1 = torch.where(mask_BT > 0, positions_T, -1).amax(dim=1, keepdim=True)
    placed_BT = torch.where(positions_T == last_B1, inputs.rewards_B[:, None], 0.0)
    if inputs.token_rewards_BT is None:
        return placed_BT
    return placed_BT + torch.where(mask_BT > 0, inputs.token_rewards_BT, 0.0)


def sequence_rewards(inputs: AdvantageInputs) -> torch.Tensor:
    """Return [B]: the reward plus the token rewards inside the mask, added up in float64, in the
    rewards' dtype."""
    if inputs.token_rewards_BT is None:
        return inputs.rewards_B
    counted_BT = torch.where(inputs.response_mask_BT > 0, inputs.token_rewards_BT, 0.0)
    return (inputs.rewards_B.double() + counted_BT.double().sum(dim=1)).to(inputs.rewards_B.dtype)


def refuse_token_rewards(inputs: AdvantageInputs, *, estimator: str, why: str) -> None:
    """Raise ConfigError when there are token rewards. `why` is a clause that says what stands
    against them."""
    if inputs.token_rewards_BT is not None:
        raise ConfigError(
            f"algorithm.adv_estimator={estimator} takes no token rewards (KL in reward, process"
            f" rewards): {why}. For KL use actor_rollout_ref.actor.use_kl_loss=true in place of"
            " algorithm.use_kl_in_reward; for process rewards use"
            " adv_estimator=reinforce_plus_plus or gae, which credit each token, or grpo, which"
            " adds them up"
        )


def spread_over_tokens(values_B: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """Return [B, T] float32: a sequence's value on each counted token, exactly 0 elsewhere."""
    return torch.where(mask_BT > 0, values_B[:, None].float(), 0.0)


def kl_token_rewards(
    old_logprobs_BT: torch.Tensor,
    ref_logprobs_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    *,
    kind: str,
    coefficient: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the KL penalty as token rewards: (-coefficient * KL [B, T], mean KL scalar).

    KL is taken from the sampling policy to the reference (arXiv:1909.08593, eq. 2), estimated per
    token by `kind` (`kl.KL_ESTIMATORS`). `KLController.update` takes the scalar: a response's mean
    token KL, averaged over responses, in nats per token, empty rows left out. Departure: the
    paper's controller watches the KL summed over a response. Per token, a target holds for any
    length.
    """
    counts_BT = mask_BT > 0
    kl_BT = token_kl(
        torch.where(counts_BT, old_logprobs_BT, 0.0),
        torch.where(counts_BT, ref_logprobs_BT, 0.0),
        kind=kind,
    )
    lengths_B = counts_BT.sum(dim=1)
    mean_kl = (kl_BT.sum(dim=1) / lengths_B.clamp(min=1)).sum() / (lengths_B > 0).sum().clamp(min=1)
    return -coefficient * kl_BT, mean_kl

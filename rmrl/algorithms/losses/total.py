"""The loss the training engine minimises: policy loss, KL to the reference, entropy bonus.

    loss = w * m * policy_loss + kl_loss_coef * KL(policy || reference) - entropy_coeff * entropy
           + n * -log pi_new
      per token

w are rollout correction's importance weights where there are any
(`algorithms/rollout_correction.py`), else 1; m is 0 on `policy_mask`'s tokens. The KL term is
GRPO's KL in the loss (arXiv:2402.03300, eq. 3); the entropy bonus PPO's (arXiv:1707.06347, eq. 9).
n weighs how likely successful responses are, VAPO's imitation term (arXiv:2504.05118).

With ratio_weighted_kl the KL term is r * KL, r = pi_new / pi_old with its gradient (DeepSeek-V3.2,
arXiv:2512.02556): tokens come from pi_old, and only with r is the expectation, and with
it the gradient, that under pi_new. That holds for `kl` and `low_var_kl`. r is 1 on policy and its
gradient is not: the term changes there as well.
"""

from __future__ import annotations

import torch

from rmrl.algorithms import LOSSES
from rmrl.algorithms.kl import token_kl
from rmrl.algorithms.losses.policy_mask import policy_mask
from rmrl.algorithms.losses.ratio import counted_sum, keep_counted, log_ratio
from rmrl.config.schema.actor import ActorConfig
from rmrl.errors import ConfigError
from rmrl.types import LossInputs

Terms = tuple[torch.Tensor, dict[str, torch.Tensor]]


def total_loss(inputs: LossInputs, *, settings: ActorConfig) -> Terms:
    """Per-token loss [B, T], 0 outside the mask, and metric sums over counted tokens (scalars
    without gradient).

    Keys: those of the policy loss, `policy_loss` (weighted), `rollout_weight` where there are
    weights, `entropy` where there is an `entropy_BT`, `ref_kl` where use_kl_loss is set,
    `positive_nll` (weighted) where successes are imitated, those of `policy_mask`. Multiply the
    loss by `aggregate.token_weights`; divide sums by how many tokens the whole batch counts.

    Raises ConfigError when a term is switched on and its input is missing.
    """
    policy_BT, metrics = LOSSES[settings.policy_loss.loss_mode](inputs, settings=settings)
    # a user's own loss may leave anything outside the mask
    loss_BT = keep_counted(policy_BT, inputs.mask_BT)
    trained_BT, masked = policy_mask(inputs, settings)
    if trained_BT is not None:
        loss_BT = torch.where(trained_BT, loss_BT, 0.0)
        metrics = {**metrics, **masked}
    if inputs.rollout_weights_BT is not None:
        weights_BT = keep_counted(inputs.rollout_weights_BT, inputs.mask_BT)
        loss_BT = loss_BT * weights_BT
        metrics = {**metrics, "rollout_weight": counted_sum(weights_BT, inputs.mask_BT)}
    metrics = {**metrics, "policy_loss": counted_sum(loss_BT, inputs.mask_BT)}
    for term in (_entropy_bonus, _reference_kl):
        term_BT, term_metrics = term(inputs, settings)
        loss_BT = loss_BT + term_BT
        metrics |= term_metrics
    if inputs.nll_weights_BT is not None:
        logprobs_BT = keep_counted(inputs.logprobs_BT, inputs.mask_BT)
        nll_BT = -logprobs_BT * keep_counted(inputs.nll_weights_BT, inputs.mask_BT)
        loss_BT = loss_BT + nll_BT
        metrics |= {"positive_nll": counted_sum(nll_BT, inputs.mask_BT)}
    return loss_BT, metrics


def _entropy_bonus(inputs: LossInputs, settings: ActorConfig) -> Terms:
    if inputs.entropy_BT is None:
        if settings.entropy_coeff != 0:
            raise ConfigError(
                f"actor_rollout_ref.actor.entropy_coeff={settings.entropy_coeff} needs the entropy"
                " of each token, but the training engine gave none: compute entropy_BT, or set"
                " entropy_coeff=0"
            )
        return torch.zeros_like(inputs.mask_BT), {}
    entropy_BT = keep_counted(inputs.entropy_BT, inputs.mask_BT)
    metrics = {"entropy": counted_sum(entropy_BT, inputs.mask_BT)}
    if not settings.entropy_coeff:
        return torch.zeros_like(entropy_BT), metrics
    return -settings.entropy_coeff * entropy_BT, metrics


def _reference_kl(inputs: LossInputs, settings: ActorConfig) -> Terms:
    if not settings.use_kl_loss:
        return torch.zeros_like(inputs.mask_BT), {}
    if inputs.ref_logprobs_BT is None:
        raise ConfigError(
            "actor_rollout_ref.actor.use_kl_loss=true needs ref_logprobs, but the batch has none:"
            " score the batch with the reference policy, or set use_kl_loss=false"
        )
    logprobs_BT = keep_counted(inputs.logprobs_BT, inputs.mask_BT)
    ref_logprobs_BT = keep_counted(inputs.ref_logprobs_BT, inputs.mask_BT)
    kl_BT = token_kl(logprobs_BT, ref_logprobs_BT, kind=settings.kl_loss_type)
    metrics = {"ref_kl": counted_sum(kl_BT, inputs.mask_BT)}
    if settings.ratio_weighted_kl:
        kl_BT = kl_BT * log_ratio(inputs).exp()
    return settings.kl_loss_coef * kl_BT, metrics

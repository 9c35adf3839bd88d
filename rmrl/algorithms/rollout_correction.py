"""Correct for responses that another engine, other kernels or an older policy sampled, with other
probabilities than in training.

With d_t = log pi_old(y_t) - log pi_rollout(y_t), bounded to [-20, 20], the ratio pi_old /
pi_rollout is

    token      exp(d_t)
    sequence   exp(sum of d_t over the response), the exponent bounded likewise; the same for each
               of its tokens
    geometric  exp(mean of d_t over the response)

Importance weights (rollout_is: token, sequence) are min(ratio, rollout_is_threshold): truncated
importance sampling (Ionides, 2008; arXiv:1802.01561 for token ratios; for this mismatch F. Yao et
al., 2025, https://fengyao.notion.site/off-policy-rl). The weights multiply the policy loss.
rollout_is_threshold_lower bounds them from below as well. rollout_is_outside=zero gives a ratio
outside the two thresholds the weight 0 instead of the bound (IcePop, arXiv:2510.18855: 0.5 and 5).
Such a token has no policy loss, but still its KL and entropy, and still counts in the divisor.
Rejection differs in these points. rollout_is_batch_normalize divides the weights by their mean over
the batch, tokens or responses, so that the step's size stays.

Rejection (rollout_rs: token, sequence, geometric) drops a token or a whole response from the mask
where its ratio lies outside [rollout_rs_threshold_lower, rollout_rs_threshold]. A long response's
sequence ratio is seldom near 1 even when every token ratio is. The geometric ratio, GSPO's
length-normalised ratio (arXiv:2507.18071), is comparable over lengths.

Rejection affects the losses alone. Rewards, the KL in reward, lengths, baselines, returns and
whitening use the response as it was sampled. A rejected response still samples its prompt's rewards
fairly, and a hole in its token rewards would change its return and so the advantages for all
responses to the prompt. The policy loss, its KL and entropy terms, the value loss and each divisor
use the remaining tokens.

Departures: weights come from the whole response, rejection after it. A rejected token has weight 0
and is not in the normalisation's mean.
"""

from __future__ import annotations

import torch

from rmrl.algorithms.masking import masked_mean
from rmrl.config.check import correction_problems
from rmrl.config.plain_checks import field_problems
from rmrl.config.schema.algorithm import RolloutCorrectionConfig
from rmrl.errors import ConfigError
from rmrl.types import Metrics

LOG_RATIO_BOUND = 20.0


def correct(
    old_logprobs_BT: torch.Tensor,
    rollout_logprobs_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    settings: RolloutCorrectionConfig,
) -> tuple[torch.Tensor | None, torch.Tensor, Metrics]:
    """Return (weights [B, T] >= 0 or None without rollout_is, mask [B, T] with 0 where rejected,
    metrics). All without gradient.

    Old log-probabilities are the training engine's before the step's first update. Both inputs are
    read inside the mask only. Metrics have the prefix `rollout_correction/`. Over the mask's
    tokens: `kl` and `k3` (KL(rollout || old), plain and never negative), `chi2` (mean squared ratio
    - 1) and `rejected` (share dropped, 0 where the mask is empty). Over the remaining tokens:
    `weight_mean`, `weight_max`, `truncated` (share outside the thresholds) and `ess` (the weights'
    effective sample size as a share, 1: all equal). Raises ConfigError for unknown names and
    impossible thresholds.
    """
    where = "algorithm.rollout_correction."
    problems = [*field_problems(settings, where), *correction_problems(settings)]
    if problems:
        raise ConfigError(problems)
    log_ratio_BT = torch.where(mask_BT > 0, old_logprobs_BT - rollout_logprobs_BT, 0.0)
    log_ratio_BT = log_ratio_BT.detach().clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    k3_BT = log_ratio_BT.expm1() - log_ratio_BT
    chi2_BT = (2 * log_ratio_BT).double().expm1()
    metrics: Metrics = {
        "rollout_correction/kl": -masked_mean(log_ratio_BT, mask_BT).item(),
        "rollout_correction/k3": masked_mean(k3_BT, mask_BT).item(),
        "rollout_correction/chi2": masked_mean(chi2_BT, mask_BT).item(),
    }
    kept_BT = mask_BT
    if settings.rollout_rs is not None:
        low, high = _rejection_bounds(settings)
        ratio_BT = _ratio(log_ratio_BT, mask_BT, settings.rollout_rs)
        acceptable_BT = (ratio_BT >= low) & (ratio_BT <= high)
        kept_BT = torch.where(acceptable_BT, mask_BT, torch.zeros_like(mask_BT))
        metrics["rollout_correction/rejected"] = masked_mean((kept_BT == 0).float(), mask_BT).item()
    if settings.rollout_is is None:
        return None, kept_BT, metrics
    ratio_BT = _ratio(log_ratio_BT, mask_BT, settings.rollout_is)
    bounded_BT = ratio_BT.clamp(
        min=settings.rollout_is_threshold_lower, max=settings.rollout_is_threshold
    )
    outside_BT = bounded_BT != ratio_BT
    if settings.rollout_is_outside == "zero":
        bounded_BT = bounded_BT.masked_fill(outside_BT, 0.0)
    weights_BT = torch.where(kept_BT > 0, bounded_BT, 0.0)
    truncated = masked_mean(outside_BT.float(), kept_BT).item()
    if settings.rollout_is_batch_normalize:
        mean = _mean_weight(weights_BT, kept_BT, settings.rollout_is)
        weights_BT = weights_BT / mean.clamp(min=torch.finfo(weights_BT.dtype).tiny)
    return weights_BT, kept_BT, metrics | _weight_metrics(weights_BT, kept_BT, truncated)


def _ratio(log_ratio_BT: torch.Tensor, mask_BT: torch.Tensor, level: str) -> torch.Tensor:
    if level == "token":
        return log_ratio_BT.exp()
    summed_B1 = log_ratio_BT.sum(dim=1, keepdim=True)
    if level == "geometric":
        summed_B1 = summed_B1 / (mask_BT > 0).sum(dim=1, keepdim=True).clamp(min=1)
    return summed_B1.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp().expand_as(log_ratio_BT)


def _rejection_bounds(settings: RolloutCorrectionConfig) -> tuple[float, float]:
    high = settings.rollout_rs_threshold
    low = settings.rollout_rs_threshold_lower
    if low is None:
        low = 1 / high
    return low, high


def _mean_weight(weights_BT: torch.Tensor, kept_BT: torch.Tensor, level: str) -> torch.Tensor:
    """Return the mean over tokens, or over responses, each with one weight."""
    if level == "token":
        return masked_mean(weights_BT, kept_BT)
    if not weights_BT.numel():
        return weights_BT.sum()
    return masked_mean(weights_BT.amax(dim=1), (kept_BT > 0).any(dim=1).float())


def _weight_metrics(weights_BT: torch.Tensor, kept_BT: torch.Tensor, truncated: float) -> Metrics:
    mean = masked_mean(weights_BT.double(), kept_BT).item()
    mean_square = masked_mean(weights_BT.double().square(), kept_BT).item()
    return {
        "rollout_correction/weight_mean": mean,
        "rollout_correction/weight_max": weights_BT.max().item() if weights_BT.numel() else 0.0,
        "rollout_correction/truncated": truncated,
        "rollout_correction/ess": mean**2 / mean_square if mean_square else 0.0,
    }

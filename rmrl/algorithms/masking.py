"""Statistics over a padded tensor's counted entries.

Everywhere: `values` and `mask` have the same shape, any rank. Mask 1 = counts, 0 = padding, which
may hold anything, NaN included. Variances and standard deviations are unbiased (divide by N - 1)
unless said otherwise, as in the field's other trainers. Sums run in float64, so the result does not
depend on the batch's length. The result has `values`' dtype.
"""

from __future__ import annotations

import torch

WHITEN_EPSILON = 1e-8
"""Added to the variance before dividing by its root."""


def masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean over counted entries, a scalar. Return 0 when nothing counts."""
    return _mean(values, mask).to(values.dtype)


def masked_var(values: torch.Tensor, mask: torch.Tensor, *, unbiased: bool = True) -> torch.Tensor:
    """Return the variance over counted entries, a scalar: the sum of squares over N - 1 (or N).
    Return 0 with fewer than two entries."""
    return _var(values, mask, unbiased=unbiased).to(values.dtype)


def masked_whiten(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return (values - mean) / sqrt(variance + 1e-8) over counted entries, exactly 0 elsewhere.
    Same shape.

    Entries that are all the same up to rounding become exactly 0, not noise of size 1.
    """
    centred = torch.where(mask > 0, values.double() - _mean(values, mask), 0.0)
    if centred.numel() == 0 or centred.abs().max() <= rounding_floor(
        _counted(values, mask).abs().max()
    ):
        return torch.zeros_like(values)
    return (centred / (_var(values, mask, unbiased=True) + WHITEN_EPSILON).sqrt()).to(values.dtype)


def rounding_floor(magnitude: torch.Tensor) -> torch.Tensor:
    """Return the largest deviation that is rounding, not contrast: 4 units in `magnitude`'s last
    float32 place, at least 1e-6. Same shape.

    Estimators, dynamic sampling, PF-PPO and the critic's metrics all use this to decide whether
    rewards are equal. float32 whatever the dtype, because scores are float32 at best. 1e-6 because
    rewards add up weighted scores around 1, whose rounding does not shrink when they cancel.
    """
    return (4 * torch.finfo(torch.float32).eps * magnitude).clamp(min=1e-6)


def _counted(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.where(mask > 0, values.double(), 0.0)


def _mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return _counted(values, mask).sum() / (mask > 0).sum().clamp(min=1)


def _var(values: torch.Tensor, mask: torch.Tensor, *, unbiased: bool) -> torch.Tensor:
    # two passes: the mean of squares minus the square of the mean loses all digits for rewards far
    # from 0
    squares = torch.where(mask > 0, (values.double() - _mean(values, mask)).square(), 0.0).sum()
    return squares / ((mask > 0).sum() - int(unbiased)).clamp(min=1)

"""The numbers every estimator reports about its advantages."""

from __future__ import annotations

import torch

from rmrl.algorithms.masking import masked_mean, masked_var
from rmrl.types import Metrics


def advantage_metrics(advantages_BT: torch.Tensor, mask_BT: torch.Tensor) -> Metrics:
    """`advantage/mean` and `advantage/std` (unbiased) over counted tokens."""
    return {
        "advantage/mean": masked_mean(advantages_BT, mask_BT).item(),
        "advantage/std": masked_var(advantages_BT, mask_BT).sqrt().item(),
    }

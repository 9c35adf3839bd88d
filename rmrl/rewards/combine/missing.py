"""each component's on_missing: what a missing verdict does to its row.

    mask         the row has no reward
    renormalize  the component is passed over; where terms add up, the other weights grow so that
                 the total of their sizes stays
    impute       the typed number takes its place: a score on the transformed scale, so it is
                 weighted but not transformed
    fail         RewardError

`renormalize` rescales for weighted_sum, gate and fold. A product, minimum or maximum of the other
components needs no other scale, soft_min's weights are shares anyway, and lexicographic cannot
place a row that lacks a key: there it masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from rmrl.errors import RewardError
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreResult

_NOT_RESCALED = ("product", "min", "max", "soft_min", "lexicographic")


def apply_missing(
    columns_BC: np.ndarray,
    missing_BC: np.ndarray,
    specs: Sequence[RewardSpec],
    results: Sequence[Sequence[ScoreResult]],
    *,
    weights_BC: np.ndarray,
    how: str,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (values_BC with imputed numbers, present_BC = not passed over, keep_B), given the
    missing verdicts `missing_BC`.

    A factor that is 0 decides a product, so its other factors are not missing. Raises RewardError
    where a component with on_missing=fail has no verdict.
    """
    values_BC = columns_BC.copy()
    if how == "product":
        zero_factors_BC = (columns_BC * weights_BC == 0) & (weights_BC != 0)
        missing_BC = missing_BC & ~zero_factors_BC.any(axis=1)[:, None]
    present_BC = np.ones(columns_BC.shape, dtype=bool)
    keep_B = np.ones(len(columns_BC), dtype=bool)
    for c, spec in enumerate(specs):
        missing_B = missing_BC[:, c]
        policy = spec.on_missing.policy
        if policy == "fail" and missing_B.any():
            reasons: set[str] = {
                ": ".join(filter(None, (result.status, result.detail)))
                for result in compress(results[c], missing_B)
            }
            raise RewardError(
                f"reward '{spec.name}' gave no verdict for {int(missing_B.sum())} of"
                f" {len(missing_B)} responses and on_missing=fail:"
                f" {'; '.join(sorted(reasons)[:3])}"
            )
        if policy == "impute":
            values_BC[missing_B, c] = spec.on_missing.value
        elif policy == "renormalize" and how != "lexicographic":
            present_BC[missing_B, c] = False
        else:
            keep_B &= ~missing_B
    return values_BC, present_BC, keep_B


def rescaled(
    weights_BC: np.ndarray, present_BC: np.ndarray, *, how: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return (weights per row, has_weight_B).

    `weights_BC` is 0 where a component is absent, `present_BC` False where it was passed over.
    has_weight_B is False where passing over leaves a row no weight at all, and so no honest reward.
    """
    if present_BC.all():
        return weights_BC, np.ones(len(weights_BC), dtype=bool)
    present_weights_BC = np.where(present_BC, weights_BC, 0.0)
    incomplete_B = ~present_BC.all(axis=1)
    total_B = np.abs(present_weights_BC).sum(axis=1)
    empty_B = incomplete_B & (total_B == 0)
    if how in _NOT_RESCALED:
        return present_weights_BC, ~empty_B
    growth_B = np.abs(weights_BC).sum(axis=1) / np.where(total_B > 0, total_B, 1.0)
    scale_B = np.where(incomplete_B & ~empty_B, growth_B, 1.0)
    return present_weights_BC * scale_B[:, None], ~empty_B

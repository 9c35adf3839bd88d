"""What a missing verdict does to its row: on_missing of each component.

    mask         the row has no reward
    renormalize  the component is passed over; where terms add up, the other weights grow so that
      the total of their sizes stays
    impute       the typed number stands in: a score on the transformed scale, so it is weighted but
      not transformed
    fail         RewardError

`renormalize` rescales for weighted_sum, gate and fold. A product, minimum or maximum of what is
left needs no other scale, soft_min's weights are shares anyway, and lexicographic cannot place a
row that lacks a key: there it masks.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    how: str,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(values_BC with imputed numbers, present_BC = not passed over, keep_B) for the components
    that `missing_BC` says are missing.

    Raises RewardError where a component with on_missing=fail has no verdict.
    """
    values_BC, present_BC = columns_BC.copy(), np.ones(columns_BC.shape, dtype=bool)
    keep_B = np.ones(len(columns_BC), dtype=bool)
    for c, spec in enumerate(specs):
        lacking_B, policy = missing_BC[:, c], spec.on_missing.policy
        if policy == "fail" and lacking_B.any():
            raise RewardError(
                f"reward '{spec.name}' gave no verdict for {int(lacking_B.sum())} of"
                f" {len(lacking_B)} responses and on_missing=fail:"
                f" {_reasons(results[c], lacking_B)}"
            )
        if policy == "impute":
            values_BC[lacking_B, c] = spec.on_missing.value
        elif policy == "renormalize" and how != "lexicographic":
            present_BC[lacking_B, c] = False
        else:
            keep_B &= ~lacking_B
    return values_BC, present_BC, keep_B


def rescaled(
    weights_BC: np.ndarray, present_BC: np.ndarray, *, how: str
) -> tuple[np.ndarray, np.ndarray]:
    """(weights per row, left_B). `weights_BC` is 0 where a component is absent; `present_BC` False
    where it was passed over.

    left_B is False where passing over left a row no weight at all: no honest number is left either.
    """
    left_BC = np.where(present_BC, weights_BC, 0.0)
    lost_B, left_B = ~present_BC.all(axis=1), np.abs(left_BC).sum(axis=1)
    empty_B = lost_B & (left_B == 0)
    if how in _NOT_RESCALED:
        return left_BC, ~empty_B
    scale_B = np.where(
        lost_B & ~empty_B, np.abs(weights_BC).sum(axis=1) / np.where(left_B > 0, left_B, 1.0), 1.0
    )
    return left_BC * scale_B[:, None], ~empty_B


def _reasons(results: Sequence[ScoreResult], lacking_B: np.ndarray) -> str:
    seen = {
        f"{r.status}: {r.detail}" if r.detail else r.status
        for r, lacking in zip(results, lacking_B, strict=True)
        if lacking
    }
    return "; ".join(sorted(seen)[:3])

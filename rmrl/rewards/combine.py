"""From component scores to one reward per response. Pure; NaN in, NaN out, never a number for a missing verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from rmrl.errors import RewardError
from rmrl.registry import Registry
from rmrl.rewards.spec import RewardSpec
from rmrl.types import RewardBatch, Scores


class Combiner(Protocol):
    """(values_BC without NaN in the rows that count, weights_BC, ops) -> rewards_B."""

    def __call__(self, values_BC: np.ndarray, weights_BC: np.ndarray, ops: Sequence[str]) -> np.ndarray: ...


COMBINERS: Registry[Callable[..., np.ndarray]] = Registry(
    "reward.combine",
    {"weighted_sum": "rmrl.rewards.combine:weighted_sum", "fold": "rmrl.rewards.combine:fold"},
)


def weighted_sum(values_BC: np.ndarray, weights_BC: np.ndarray, ops: Sequence[str]) -> np.ndarray:
    """sum_c w_c * s_c, with the weights as they were given."""
    del ops
    return np.where(weights_BC == 0, 0.0, values_BC * weights_BC).sum(axis=1)


def fold(values_BC: np.ndarray, weights_BC: np.ndarray, ops: Sequence[str]) -> np.ndarray:
    """Per component in order: add: total + w * s; mul: total * w * s. Starts from 0, so a leading `mul` gives 0."""
    total = np.zeros(len(values_BC))
    for c, op in enumerate(ops):
        term = np.where(weights_BC[:, c] == 0, 0.0, values_BC[:, c] * weights_BC[:, c])
        total = total + term if op == "add" else total * term
    return total


def combine(scores: Scores, specs: Sequence[RewardSpec], *, how: str) -> RewardBatch:
    """Apply each component's on_missing, then the combiner.

    Raises RewardError where a component with on_missing=fail has no verdict.
    """
    weights_C = np.asarray([spec.weight for spec in specs], dtype=np.float64)
    values_BC = scores.values_BC.copy()
    missing_BC = np.isnan(values_BC)
    keep_B = np.ones(len(values_BC), dtype=bool)
    weights_BC = np.broadcast_to(weights_C, values_BC.shape).copy()
    for c, spec in enumerate(specs):
        rows = missing_BC[:, c]
        if not rows.any():
            continue
        _apply_missing(spec, rows, column=values_BC[:, c], weight=weights_BC[:, c], keep_B=keep_B, reasons=_reasons(scores, c, rows))
    _rescale(weights_BC, weights_C, keep_B)
    rewards_B = COMBINERS[how](np.nan_to_num(values_BC, nan=0.0), weights_BC, [spec.combine_op for spec in specs])
    return RewardBatch(scores=scores, weights_C=weights_C, rewards_B=np.where(keep_B, rewards_B, np.nan), keep_B=keep_B)


def _apply_missing(
    spec: RewardSpec, rows: np.ndarray, *, column: np.ndarray, weight: np.ndarray, keep_B: np.ndarray, reasons: str
) -> None:
    policy = spec.on_missing.policy
    if policy == "fail":
        raise RewardError(f"reward '{spec.name}' gave no verdict for {int(rows.sum())} of {len(rows)} responses and on_missing=fail: {reasons}")
    if policy == "impute":
        column[rows] = spec.on_missing.value
    elif policy == "renormalize":
        weight[rows] = 0.0
    else:
        keep_B &= ~rows


def _rescale(weights_BC: np.ndarray, weights_C: np.ndarray, keep_B: np.ndarray) -> None:
    """Rows that lost components to `renormalize` keep the total absolute weight; a row that lost all of them has no reward."""
    full, left_B = np.abs(weights_C).sum(), np.abs(weights_BC).sum(axis=1)
    lost_B = left_B < full
    keep_B &= ~(lost_B & (left_B == 0))
    weights_BC[lost_B] *= (full / np.where(left_B == 0, 1.0, left_B))[lost_B, None]


def _reasons(scores: Scores, c: int, rows: np.ndarray) -> str:
    seen = {f"{r.status}: {r.detail}" if r.detail else r.status for r, missing in zip(scores.results[c], rows, strict=True) if missing}
    return "; ".join(sorted(seen)[:3])

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
    """(values_BC, weights_BC) -> rewards_B. Where `present_BC` is False a component is left out of its row; its value means nothing."""

    def __call__(self, values_BC: np.ndarray, weights_BC: np.ndarray, *, ops: Sequence[str], present_BC: np.ndarray) -> np.ndarray: ...


COMBINERS: Registry[Callable[..., np.ndarray]] = Registry(
    "reward.combine",
    {"weighted_sum": "rmrl.rewards.combine:weighted_sum", "fold": "rmrl.rewards.combine:fold"},
)


def weighted_sum(values_BC: np.ndarray, weights_BC: np.ndarray, *, ops: Sequence[str], present_BC: np.ndarray) -> np.ndarray:
    """sum_c w_c * s_c, with the weights as they were given."""
    del ops
    return np.where(present_BC, values_BC * weights_BC, 0.0).sum(axis=1)


def fold(values_BC: np.ndarray, weights_BC: np.ndarray, *, ops: Sequence[str], present_BC: np.ndarray) -> np.ndarray:
    """Per component in order: add: total + w * s; mul: total * w * s. Starts from 0, so a leading `mul` gives 0.

    A component that a row lacks is passed over. Where that leaves nothing to multiply, the first one present starts the total:
    0 * s would make a number out of a missing verdict.
    """
    total_B = np.zeros(len(values_BC))
    started_B, lacks_B = np.zeros(len(values_BC), dtype=bool), np.zeros(len(values_BC), dtype=bool)
    for c, op in enumerate(ops):
        present_B = present_BC[:, c]
        term_B = np.where(present_B, values_BC[:, c] * weights_BC[:, c], 0.0)
        joined_B = total_B + term_B if op == "add" else np.where(lacks_B & ~started_B, term_B, total_B * term_B)
        total_B = np.where(present_B, joined_B, total_B)
        started_B |= present_B
        lacks_B |= ~present_B
    return total_B


def combine(scores: Scores, specs: Sequence[RewardSpec], *, how: str) -> RewardBatch:
    """Apply each component's on_missing, then the combiner.

    Raises RewardError where a component with on_missing=fail has no verdict.
    """
    weights_C = np.asarray([spec.weight for spec in specs], dtype=np.float64)
    values_BC = scores.values_BC.copy()
    missing_BC, present_BC = np.isnan(values_BC), np.ones(values_BC.shape, dtype=bool)
    keep_B = np.ones(len(values_BC), dtype=bool)
    for c, spec in enumerate(specs):
        rows = missing_BC[:, c]
        if rows.any():
            _apply_missing(spec, rows, column=values_BC[:, c], present=present_BC[:, c], keep_B=keep_B, reasons=_reasons(scores, c, rows))
    weights_BC = _rescaled(weights_C, present_BC, keep_B)
    values_BC = np.nan_to_num(values_BC, nan=0.0)
    rewards_B = COMBINERS[how](values_BC, weights_BC, ops=[spec.combine_op for spec in specs], present_BC=present_BC)
    return RewardBatch(scores=scores, weights_C=weights_C, rewards_B=np.where(keep_B, rewards_B, np.nan), keep_B=keep_B)


def _apply_missing(
    spec: RewardSpec, rows: np.ndarray, *, column: np.ndarray, present: np.ndarray, keep_B: np.ndarray, reasons: str
) -> None:
    policy = spec.on_missing.policy
    if policy == "fail":
        raise RewardError(
            f"reward '{spec.name}' gave no verdict for {int(rows.sum())} of {len(rows)} responses and on_missing=fail: {reasons}"
        )
    if policy == "impute":
        column[rows] = spec.on_missing.value
    elif policy == "renormalize":
        present[rows] = False
    else:
        keep_B &= ~rows


def _rescaled(weights_C: np.ndarray, present_BC: np.ndarray, keep_B: np.ndarray) -> np.ndarray:
    """Weights per row. Where `renormalize` took components, the total absolute weight is kept; a row left with none has no reward."""
    weights_BC = np.where(present_BC, weights_C, 0.0)
    lost_B = ~present_BC.all(axis=1)
    left_B = np.abs(weights_BC).sum(axis=1)
    keep_B &= ~(lost_B & (left_B == 0))
    scale_B = np.where(lost_B & (left_B > 0), np.abs(weights_C).sum() / np.where(left_B > 0, left_B, 1.0), 1.0)
    return weights_BC * scale_B[:, None]


def _reasons(scores: Scores, c: int, rows: np.ndarray) -> str:
    seen = {f"{r.status}: {r.detail}" if r.detail else r.status for r, missing in zip(scores.results[c], rows, strict=True) if missing}
    return "; ".join(sorted(seen)[:3])

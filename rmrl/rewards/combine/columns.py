"""The components' columns as the combiner reads them: transformed, NaN where absent, 0 where
`counts_at` does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.rewards.combine.gates import counted, zeroed
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms import Chain
from rmrl.types import Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """One column per component, each array [B, C]."""

    values_BC: np.ndarray
    """float64, NaN where there is no verdict, or the component is absent."""
    absent_BC: np.ndarray
    """bool: skipped, behind a closed gate, or of another data source."""
    silent_BC: np.ndarray
    """bool: absent, or 0 because of `counts_at`: the verdict itself has no effect."""


def columns_of(
    scores: Scores,
    specs: Sequence[RewardSpec],
    transforms: Sequence[Chain],
    *,
    rows: Rows,
    settings: RewardConfig,
    applies_BC: np.ndarray,
    learn: bool,
) -> Columns:
    """Transform each component's scores. Silent scores do not enter a transform's statistics, which
    stay without `learn`. `applies_BC`: the component belongs to the row's data source."""
    zeroed_BC = zeroed(scores, specs, applies_BC=applies_BC)
    counted_BC = counted(scores, specs, settings=settings, applies_BC=applies_BC)
    absent_BC = ~counted_BC & ~zeroed_BC
    silent_BC = absent_BC | zeroed_BC
    values_BC = np.where(silent_BC, np.nan, scores.values_BC)
    for c, chain in enumerate(transforms):
        column_B = values_BC[:, c]
        values_BC[:, c] = chain.apply(column_B, rows, ~np.isnan(column_B), learn=learn)
    values_BC[zeroed_BC] = 0.0
    return Columns(values_BC=values_BC, absent_BC=absent_BC, silent_BC=silent_BC)

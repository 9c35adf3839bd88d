"""Combine one step's scores into rewards, called by the scorer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.errors import ConfigError
from rmrl.rewards.combine.gates import counted, zeroed
from rmrl.rewards.combine.missing import apply_missing, rescaled
from rmrl.rewards.combine.steps import rows_with_steps, step_problems, to_tokens, weighted_steps
from rmrl.rewards.combine.table import COMBINERS, CombineInputs
from rmrl.rewards.combine.watched import takes_part
from rmrl.rewards.combine.weights import common_weights
from rmrl.rewards.scoring.rows import Rows
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms import Chain
from rmrl.types import RewardBatch, Scores, Step


def combine(
    scores: Scores,
    specs: Sequence[RewardSpec],
    rows: Rows,
    *,
    settings: RewardConfig,
    weights_BC: np.ndarray,
    transforms: Sequence[Chain],
    parts: Sequence[RewardSpec] = (),
    learn: bool = True,
) -> RewardBatch:
    """Transform, fill in missing verdicts, weight and combine, in this order.

    One spec and one chain per component; `weights_BC` of `weights_matrix`. A component that is
    absent on a row (status "skipped", closed gate, other data source) or watched there (weight 0,
    see `watched`) contributes nothing and masks nothing. `parts`: members of ensembles that are no
    components. A component whose `counts_at` does not hold counts 0 there, after transforms,
    whatever its verdict. A row without any component for its data source has no reward; one without
    any that counts has 0 (lexicographic: 0.5, as every response ties). Without `learn` the
    transforms' running statistics stay. Raises RewardError for on_missing=fail, ConfigError where
    `to_tokens` does not go with the combiner or the transforms.
    """
    _check_steps(specs, transforms, settings)
    applies_BC = ~np.isnan(weights_BC)
    takes_part_BC = takes_part(specs, weights_BC, settings=settings, parts=parts)
    zeroed_BC = zeroed(scores, specs, applies_BC=applies_BC)
    counted_BC = counted(scores, specs, settings=settings, applies_BC=applies_BC)
    absent_BC = ~counted_BC & ~zeroed_BC
    silent_BC = absent_BC | zeroed_BC
    columns_BC = _transformed(scores, rows, transforms, absent_BC=silent_BC, learn=learn)
    columns_BC[zeroed_BC] = 0.0
    weights = np.where(absent_BC, 0.0, weights_BC)
    missing_BC = np.isnan(columns_BC) & ~absent_BC & takes_part_BC
    how = settings.combine
    if how == "product":
        missing_BC &= ~_has_zero_factor(columns_BC, weights)[:, None]
    values_BC, present_BC, keep_B = apply_missing(
        columns_BC, missing_BC, specs, scores.results, how=how
    )
    weights, has_weight_B = rescaled(weights, present_BC, how=how)
    keep_B &= has_weight_B & applies_BC.any(axis=1)
    weighted_BC = applies_BC & (weights_BC != 0)
    to_steps_BC = rows_with_steps(scores, specs) & ~silent_BC & weighted_BC & keep_B[:, None]
    steps = _steps(scores, specs, transforms, rows=rows, weights_BC=weights, counted_BC=to_steps_BC)
    all_rows = _AllRows(
        values_BC=values_BC,
        weights_BC=weights,
        present_BC=~np.isnan(values_BC) & ~to_steps_BC,
        closed_BC=absent_BC & applies_BC,
        watched_BC=applies_BC & ~weighted_BC,
    )
    return RewardBatch(
        scores=scores,
        weights_C=common_weights(weights_BC, specs),
        rewards_B=_rewards(all_rows, keep_B=keep_B, rows=rows, specs=specs, settings=settings),
        keep_B=keep_B,
        steps=steps,
        columns_BC=columns_BC,
        takes_part_BC=takes_part_BC,
    )


def _has_zero_factor(columns_BC: np.ndarray, weights_BC: np.ndarray) -> np.ndarray:
    """bool [B]: a factor of 0 decides the product, whatever a missing factor would have been."""
    return ((columns_BC * weights_BC == 0) & (weights_BC != 0)).any(axis=1)


def _check_steps(
    specs: Sequence[RewardSpec], transforms: Sequence[Chain], settings: RewardConfig
) -> None:
    problems = step_problems(specs, transforms, settings=settings)
    if problems:
        raise ConfigError(problems)


def _transformed(
    scores: Scores, rows: Rows, transforms: Sequence[Chain], *, absent_BC: np.ndarray, learn: bool
) -> np.ndarray:
    """[B, C], NaN where there is no verdict or the component is absent: a score that does not count
    does not shape the statistics either."""
    columns_BC = np.where(absent_BC, np.nan, scores.values_BC)
    for c, chain in enumerate(transforms):
        column_B = columns_BC[:, c]
        columns_BC[:, c] = chain.apply(column_B, rows, ~np.isnan(column_B), learn=learn)
    return columns_BC


@dataclass(frozen=True, slots=True, kw_only=True)
class _AllRows:
    """The combiner's inputs for every row, kept or not."""

    values_BC: np.ndarray
    weights_BC: np.ndarray
    present_BC: np.ndarray
    closed_BC: np.ndarray
    watched_BC: np.ndarray


def _rewards(
    all_rows: _AllRows,
    *,
    keep_B: np.ndarray,
    rows: Rows,
    specs: Sequence[RewardSpec],
    settings: RewardConfig,
) -> np.ndarray:
    """[B], NaN where not kept. The combiner reads only the kept rows."""
    rewards_B = np.full(len(keep_B), np.nan)
    if keep_B.any():
        inputs = CombineInputs(
            values_NC=np.where(all_rows.present_BC, all_rows.values_BC, 0.0)[keep_B],
            weights_NC=np.where(all_rows.present_BC, all_rows.weights_BC, 0.0)[keep_B],
            present_NC=all_rows.present_BC[keep_B],
            closed_NC=all_rows.closed_BC[keep_B],
            watched_NC=all_rows.watched_BC[keep_B],
            ops=tuple(spec.combine_op for spec in specs),
            group_ids_N=rows.group_ids_B[keep_B],
        )
        rewards_B[keep_B] = COMBINERS[settings.combine](inputs, settings=settings)
    return rewards_B


def _steps(
    scores: Scores,
    specs: Sequence[RewardSpec],
    transforms: Sequence[Chain],
    *,
    rows: Rows,
    weights_BC: np.ndarray,
    counted_BC: np.ndarray,
) -> tuple[tuple[Step, ...], ...]:
    """[B] parts that go to their tokens; () where no component sends any."""
    weighted_C = (weights_BC != 0).any(axis=0)
    if not any(to_tokens(spec) and weighted_C[c] for c, spec in enumerate(specs)):
        return ()
    return weighted_steps(
        scores, transforms=transforms, rows=rows, weights_BC=weights_BC, counted_BC=counted_BC
    )

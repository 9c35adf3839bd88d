"""One step's scores combined into rewards, called by the scorer.

A component that is absent on a row (status "skipped", closed gate, other data source) or watched
there (weight 0, see `watched`) contributes nothing and masks nothing. A component whose `counts_at`
does not hold counts 0 there, after transforms, whatever its verdict. A row without any component
for its data source has no reward. One without any that counts has 0 (lexicographic: 0.5, as every
response ties).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.rewards.combine.columns import columns_of
from rmrl.rewards.combine.missing import apply_missing, rescaled
from rmrl.rewards.combine.steps import check_steps, rows_with_steps, weighted_steps
from rmrl.rewards.combine.table import COMBINERS, CombineInputs
from rmrl.rewards.combine.teachers import teachers_of
from rmrl.rewards.combine.watched import takes_part
from rmrl.rewards.combine.weights import common_weights
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms import Chain
from rmrl.types import RewardBatch, Scores


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

    One spec and one chain per component; `weights_BC` of `weights_matrix`; `parts`: ensembles'
    members that are no components. Without `learn` the transforms' running statistics stay. Raises
    RewardError for on_missing=fail, ConfigError for `check_steps`' problems.
    """
    check_steps(specs, transforms, settings=settings)
    applies_BC = ~np.isnan(weights_BC)
    takes_part_BC = takes_part(specs, weights_BC, settings=settings, parts=parts)
    columns = columns_of(
        scores, specs, transforms, rows=rows, settings=settings, applies_BC=applies_BC, learn=learn
    )
    weights = np.where(columns.absent_BC, 0.0, weights_BC)
    missing_BC = np.isnan(columns.values_BC) & ~columns.absent_BC & takes_part_BC
    how = settings.combine
    values_BC, present_BC, keep_B = apply_missing(
        columns.values_BC, missing_BC, specs, scores.results, weights_BC=weights, how=how
    )
    weights, has_weight_B = rescaled(weights, present_BC, how=how)
    keep_B &= has_weight_B & applies_BC.any(axis=1)
    weighted_BC = applies_BC & (weights_BC != 0)
    to_steps_BC = (
        rows_with_steps(scores, specs) & ~columns.silent_BC & weighted_BC & keep_B[:, None]
    )
    present_BC = ~np.isnan(values_BC) & ~to_steps_BC
    inputs = CombineInputs(
        values_NC=np.where(present_BC, values_BC, 0.0),
        weights_NC=np.where(present_BC, weights, 0.0),
        present_NC=present_BC,
        closed_NC=columns.absent_BC & applies_BC,
        watched_NC=applies_BC & ~weighted_BC,
        ops=tuple(spec.combine_op for spec in specs),
        group_ids_N=rows.group_ids_B,
    )
    rewards_B = np.full(len(keep_B), np.nan)
    if keep_B.any():
        kept = inputs if keep_B.all() else inputs.select(keep_B)
        rewards_B[keep_B] = COMBINERS[how](kept, settings=settings)
    counted = {"weights_BC": weights, "counted_BC": to_steps_BC}
    return RewardBatch(
        scores=scores,
        weights_C=common_weights(weights_BC, specs),
        rewards_B=rewards_B,
        keep_B=keep_B,
        steps=weighted_steps(scores, specs, transforms, rows=rows, **counted),
        teachers=teachers_of(scores, specs, **counted),
        columns_BC=columns.values_BC,
        takes_part_BC=takes_part_BC,
    )

"""The components' weights per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rmrl.rewards.combine.schedules import Schedule
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.specs.spec import RewardSpec


def weights_matrix(
    specs: Sequence[RewardSpec], rows: Rows, *, step: float, schedules: Mapping[str, Schedule]
) -> np.ndarray:
    """float64 [B, C]. NaN: the component does not apply to the row's data source, or is only in an
    ensemble.

    A spec with `sources` has their weights, others their own on every row. A schedule replaces
    either by its weight at `step`.
    """
    weights_BC = np.full((len(rows), len(specs)), np.nan)
    for c, spec in enumerate(specs):
        if not spec.part_of:
            if spec.sources is None:
                weights_BC[:, c] = spec.weight
            else:
                weights_BC[:, c] = [spec.sources.get(source, np.nan) for source in rows.sources]
            if spec.name in schedules:
                weights_BC[~np.isnan(weights_BC[:, c]), c] = schedules[spec.name].at(step)
    return weights_BC


def common_weights(weights_BC: np.ndarray, specs: Sequence[RewardSpec]) -> np.ndarray:
    """Return one weight per component, [C]: its rows' where they agree (so a schedule shows), else
    the spec's own."""
    weights_C = np.asarray([spec.weight for spec in specs], dtype=np.float64)
    for c in range(len(specs)):
        applied = weights_BC[~np.isnan(weights_BC[:, c]), c]
        if len(applied) and (applied == applied[0]).all():
            weights_C[c] = applied[0]
    return weights_C

"""Components that have a part in a row's reward, and watched ones: scored and logged, and no more.

A component with weight 0 is watched. Its missing verdicts mask no row, are not imputed, end no run
(`on_missing`) and count for no budget (reward.max_missing). The weight is the row's: a schedule or
reward.by_source may give 0 here and another number there.

A gate is the exception: a verdict of weight 0 that decides whether another component counts has a
part in the reward all the same. It adds nothing, but without it there is no honest number. A gate
in front of watched components alone is watched itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.rewards.combine.gates import gates_of
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.specs.spec import RewardSpec


def takes_part(
    specs: Sequence[RewardSpec],
    weights_BC: np.ndarray,
    *,
    settings: RewardConfig,
    parts: Sequence[RewardSpec] = (),
) -> np.ndarray:
    """bool [B, C]: the component belongs to the row, and its weight there is not 0 or it is a gate
    of one that takes part.

    `weights_BC` of `weights_matrix`; `parts`: members of ensembles that are no components, whose
    gates are gates of the ensemble.
    """
    applies_BC = ~np.isnan(weights_BC)
    part_BC = applies_BC & (weights_BC != 0)
    if (part_BC == applies_BC).all():
        return part_BC
    # Columns of each component's gates; an ensemble has those of its members as well.
    column_of = {spec.name: c for c, spec in enumerate(specs)}
    names_of = {spec.name: gates_of(spec, settings) for spec in (*parts, *specs)}
    gates: list[list[int]] = []
    for spec in specs:
        names = list(names_of[spec.name])
        if REWARD_KINDS[spec.kind].combines:
            for member in spec.options.of:
                names += names_of.get(member, ())
        gates.append([column_of[name] for name in names if name in column_of])
    # A gate may be behind a gate.
    for _ in specs:
        before_BC = part_BC.copy()
        for c, columns in enumerate(gates):
            for g in columns:
                part_BC[:, g] |= applies_BC[:, g] & before_BC[:, c]
        if (before_BC == part_BC).all():
            break
    return part_BC

"""Components that count on each row: gates that must hold, data sources, and requests that the
scorer saved.

A gate holds where its score (from the component, before transforms) is greater than
reward.gate_above. A missing verdict holds nothing open. The rule also applies to existing verdicts,
so a component that was scored although its gate is closed counts as little as one that was never
scored: the reward does not depend on how much work is saved. A gate that has no part in a row's
data source is no gate there.

`counts_at` is stricter: {rule: 1} lets a component count on rows where the rule's score is 1, and
makes it 0 on all others, scored or not. A 0 is a number: with the operation `mul` of a fold it
makes the total 0, where a component behind a closed gate would be passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Scores


def gates_of(spec: RewardSpec, settings: RewardConfig) -> tuple[str, ...]:
    """Which components must hold where this one counts: its own, and with reward.combine=gate those
    of reward.gates."""
    gates = list(spec.gates)
    if settings.combine == "gate" and spec.name not in settings.gates:
        gates += settings.gates
    return tuple(dict.fromkeys(gates))


def counted(
    scores: Scores, specs: Sequence[RewardSpec], *, settings: RewardConfig, applies_BC: np.ndarray
) -> np.ndarray:
    """bool [B, C]: the component applies to the row. False: absent, which is not missing.

    `applies_BC`: the component belongs to the row's data source.
    """
    counted_BC = applies_BC & (scores.status_BC != "skipped")
    column_of = {spec.name: c for c, spec in enumerate(specs)}
    gates: list[list[int]] = []
    for spec in specs:
        names = gates_of(spec, settings)
        gates.append([column_of[name] for name in names if name in column_of])
    if not any(gates) and not any(spec.counts_at for spec in specs):
        return counted_BC
    values_BC = scores.values_BC
    with np.errstate(invalid="ignore"):
        above_BC = values_BC > settings.gate_above
    for c, spec in enumerate(specs):
        for name, score in spec.counts_at.items():
            other = column_of[name]
            counted_BC[:, c] &= ~applies_BC[:, other] | (values_BC[:, other] == score)
    # A gate may be behind a gate, which closes all behind it.
    for _ in specs:
        before_BC = counted_BC.copy()
        for c, columns in enumerate(gates):
            for g in columns:
                counted_BC[:, c] &= ~applies_BC[:, g] | (before_BC[:, g] & above_BC[:, g])
        if (before_BC == counted_BC).all():
            break
    return counted_BC


def zeroed(scores: Scores, specs: Sequence[RewardSpec], *, applies_BC: np.ndarray) -> np.ndarray:
    """bool [B, C]: the component counts 0, because a component of its `counts_at` has another score
    there, or was skipped.

    The scores compared are those before transforms. A component that has no part in a row's data
    source is not compared. A missing verdict zeroes nothing, since it must not become a number. In
    `counted` the component is absent there.
    """
    zeroed_BC = np.zeros(applies_BC.shape, dtype=bool)
    if not any(spec.counts_at for spec in specs):
        return zeroed_BC
    values_BC = scores.values_BC
    skipped_BC = scores.status_BC == "skipped"
    column_of = {spec.name: c for c, spec in enumerate(specs)}
    for c, spec in enumerate(specs):
        for name, score in spec.counts_at.items():
            other = column_of[name]
            other_B = values_BC[:, other]
            differs_B = skipped_BC[:, other] | (~np.isnan(other_B) & (other_B != score))
            zeroed_BC[:, c] |= applies_BC[:, c] & applies_BC[:, other] & differs_B
    return zeroed_BC

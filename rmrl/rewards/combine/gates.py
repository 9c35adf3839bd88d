"""Which components count on which rows: gates that must hold, data sources, and what the scorer did
not ask.

A gate holds where its score (as the component gave it, before transforms) is greater than
reward.gate_above; a missing verdict holds nothing open. The rule is applied to the verdicts that
are there as well, so a component that was scored although its gate is closed counts as little as
one that was never asked: the reward does not depend on how much work was saved. A gate that has no
part in a row's data source is no gate there.

`counts_at` is stricter: {rule: 1} lets a component count on rows where the rule's score is 1, and
makes it 0 on all others, asked or not. A 0 is a number: with the operation `mul` of a fold it makes
the total 0, where a component behind a closed gate would be passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Scores


def gates_of(spec: RewardSpec, settings: RewardConfig) -> tuple[str, ...]:
    """Names of the components that must hold where this one counts: its own, and with
    reward.combine=gate those of reward.gates."""
    common = (
        settings.gates if settings.combine == "gate" and spec.name not in settings.gates else []
    )
    return tuple(dict.fromkeys([*spec.gates, *common]))


def counted(
    scores: Scores, specs: Sequence[RewardSpec], *, settings: RewardConfig, applies_BC: np.ndarray
) -> np.ndarray:
    """bool [B, C]: the component has to do with the row. False: absent, which is not missing.

    `applies_BC`: the component belongs to the row's data source.
    """
    values_BC = scores.values_BC
    counted_BC = applies_BC & (scores.status_BC != "skipped")
    with np.errstate(invalid="ignore"):
        above_BC = values_BC > settings.gate_above
    at = {spec.name: c for c, spec in enumerate(specs)}
    gates = [[at[name] for name in gates_of(spec, settings) if name in at] for spec in specs]
    for c, spec in enumerate(specs):
        for name, score in spec.counts_at.items():
            counted_BC[:, c] &= ~applies_BC[:, at[name]] | (values_BC[:, at[name]] == score)
    for _ in specs:  # a gate may stand behind a gate: what closes it closes all behind it
        before_BC = counted_BC.copy()
        for c, columns in enumerate(gates):
            for g in columns:
                counted_BC[:, c] &= ~applies_BC[:, g] | (before_BC[:, g] & above_BC[:, g])
        if (before_BC == counted_BC).all():
            break
    return counted_BC


def zeroed(scores: Scores, specs: Sequence[RewardSpec], *, applies_BC: np.ndarray) -> np.ndarray:
    """bool [B, C]: the component counts 0, because a component of its `counts_at` has another score
    there, or was not asked.

    Scores are compared as the components gave them, before transforms. What has no part in a row's
    data source is not compared, and a verdict that is missing zeroes nothing: no number may come of
    it (`counted` says that the component is absent there).
    """
    values_BC, skipped_BC = scores.values_BC, scores.status_BC == "skipped"
    at = {spec.name: c for c, spec in enumerate(specs)}
    zeroed_BC = np.zeros(applies_BC.shape, dtype=bool)
    for c, spec in enumerate(specs):
        for name, score in spec.counts_at.items():
            other = at[name]
            differs_B = skipped_BC[:, other] | (
                ~np.isnan(values_BC[:, other]) & (values_BC[:, other] != score)
            )
            zeroed_BC[:, c] |= applies_BC[:, c] & applies_BC[:, other] & differs_B
    return zeroed_BC

"""Problems in section `reward` that concern several keys, in training and in offline scoring alike.

Names, kinds and the ways to combine are checked where they are resolved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from rmrl.config.plain_checks import count
from rmrl.config.schema import Config, ScoreConfig


def reward_problems(config: Config | ScoreConfig) -> Iterator[str]:
    """Yield one sentence per problem."""
    reward = config.reward
    names = ", ".join(reward.models)
    if not reward.models and not reward.by_source:
        yield "reward.models is empty: name at least one reward, e.g. reward.models=[gsm8k]"
    if len(set(reward.models)) < len(reward.models):
        yield (
            f"reward.models names one reward twice ({names}): give each once, with the sum of its"
            " weights"
        )
    if reward.weights is not None and len(reward.weights) != len(reward.models):
        yield (
            f"reward.weights has {count(reward.weights, 'value')} for"
            f" {count(reward.models, 'model')} ({names}): give one weight per model, e.g."
            " reward.weights=[0.3,0.5]"
        )
    if not all(map(math.isfinite, reward.weights or ())):
        yield f"reward.weights={reward.weights}: every weight must be a finite number"
    if reward.rule_workers is not None and reward.rule_workers < 1:
        yield (
            f"reward.rule_workers={reward.rule_workers}: rules need at least 1 process; leave it"
            " out or give 1 or more"
        )
    pools = {reward.engine.pool}
    for spec in reward.specs.values():
        engine = spec.get("engine") if isinstance(spec, dict) else None
        if isinstance(engine, dict):
            pools.add(str(engine.get("pool", "")))
    for pool in sorted(pools - {""} - set(config.trainer.resource_pools)):
        yield (
            f"reward engine pool '{pool}' does not exist: give"
            f" trainer.resource_pools.{pool}.n_gpus_per_node=<devices>, or leave it out"
        )

"""A reward's entry `watch`: the reward has weight 0, and is asked about a share of the responses,
every n-th step.

A watcher sees what the reward does not: a strong judge, or people's own rule, that costs too much
for every response. A watcher has no part in any reward, so settings that need its score on every
row (a gate, `counts_at`, an ensemble) are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rmrl.config.plain_checks import field_problems
from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.specs.spec import RewardSpec, Watch
from rmrl.rewards.specs.values import known_entries


def parse_watch(raw: Any, *, where: str) -> Watch | None:
    """Read {rows: 0.05, every: 10}. Each entry may be left out. None: the reward is not watched.
    Raises ConfigError naming `where`."""
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where}={raw!r}: give entries, e.g. {where}.rows=0.05 {where}.every=10")
    watch = Watch(**known_entries(raw, Watch, where))
    problems = list(field_problems(watch, f"{where}."))
    if problems:
        raise ConfigError(problems)
    return watch


def watch_problems(specs: Sequence[RewardSpec], config: RewardConfig) -> Iterator[str]:
    """Yield a sentence for each weight that a watcher was given, and for each reward that depends
    on a watcher's score."""
    watchers = {spec.name: spec for spec in specs if spec.watch is not None}
    weights: list[tuple[str, str, Any]] = [
        ("reward.weights", name, weight)
        for name, weight in zip(config.models, config.weights or (), strict=False)
    ]
    for source, entry in config.by_source.items():
        models = entry["models"]
        for name, weight in zip(models, entry.get("weights") or (), strict=False):
            weights.append((f"reward.by_source.{source}.weights", str(name), weight))
    for where, name, weight in weights:
        if name in watchers and weight != 0:
            yield (
                f"{where} gives {name} the weight {weight:g}, and reward.specs.{name}.watch makes"
                " it a watcher, which is not asked about every response: give it the weight 0, or"
                " leave watch out"
            )
    for name, spec in watchers.items():
        where = f"reward.specs.{name}.watch"
        if name in config.weight_schedules:
            yield (
                f"{where}: a watcher has the weight 0 at every step; leave out"
                f" reward.weight_schedules.{name}, or watch"
            )
        if REWARD_KINDS[spec.kind].combines:
            yield (
                f"{where}: {name} is computed from the scores of its members and asks nobody; give"
                " watch to a reward that is asked itself"
            )
        if spec.part_of:
            yield f"{where}: the score of {spec.part_of} needs it on every row; leave watch out"
    for spec in specs:
        needed = dict.fromkeys((*spec.gates, *spec.counts_at))
        if REWARD_KINDS[spec.kind].combines:
            needed |= dict.fromkeys(spec.options.of)
        for name in needed:
            if name in watchers and not watchers[name].part_of:
                yield (
                    f"reward '{spec.name}' depends on the score of {name} on every row, and"
                    f" reward.specs.{name}.watch has it asked about some of them: leave watch out"
                )

"""Problems in how scores are combined, checked on the typed configuration alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from rmrl.config.numbers import is_number
from rmrl.config.schema.reward import RewardConfig
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean
from rmrl.rewards.combine.schedules import schedule_problems
from rmrl.rewards.combine.steps import needs_sum
from rmrl.rewards.combine.table import COMBINERS
from rmrl.rewards.transforms import parse_transforms

_OPS = ("add", "mul")
_SOURCE_ENTRIES = ("models", "weights")


def combine_problems(settings: RewardConfig, names: Sequence[str]) -> list[str]:
    """Return all problems as full sentences, empty when there are none. `names` are the rewards of
    reward.models, in order.

    Rewards that only reward.by_source names may be gates, and have transforms and schedules, like
    any other.
    """
    rewards = list(dict.fromkeys(names))
    for raw in settings.by_source.values():
        models = _entry(raw, "models")
        if _is_names(models):
            rewards += [name for name in dict.fromkeys(models) if name not in rewards]
    if settings.combine not in COMBINERS:
        return [
            f"reward.combine={settings.combine!r}: not a"
            f" choice{did_you_mean(settings.combine, list(COMBINERS))}"
        ]
    problems = [
        *_fold(settings, names),
        *_by_source(settings),
        *_gates(settings, rewards),
        *_parameters(settings),
        *_weights(settings),
        *_transforms(settings, rewards),
    ]
    for name in rewards:
        to_tokens = _entry(settings.specs.get(name), "to_tokens") is True
        if to_tokens and settings.combine != "weighted_sum":
            problems.append(needs_sum(name, settings.combine))
    return problems + schedule_problems(settings.weight_schedules, rewards)


def _fold(settings: RewardConfig, names: Sequence[str]) -> Iterator[str]:
    ops = settings.combine_ops
    if ops is None:
        return
    if settings.combine != "fold":
        yield (
            "reward.combine_ops belongs to reward.combine=fold and has no effect on"
            f" {settings.combine}: give that, or leave it out"
        )
    if len(ops) != len(names):
        yield (
            f"reward.combine_ops has {_count(ops, 'value')} for {_count(names, 'model')}"
            f" ({', '.join(names)}): give add or mul for each, e.g. reward.combine_ops=[add,mul]"
        )
    for op in ops:
        if op not in _OPS:
            yield f"reward.combine_ops: {op!r} is not a choice; known: add, mul"
    leading = ""
    if settings.weights is not None and not (settings.weight_schedules or settings.by_source):
        weighted = zip(ops, settings.weights, strict=False)
        leading = next((op for op, weight in weighted if weight != 0), "")
    if ops and ops[0] == "mul":
        yield (
            "reward.combine_ops starts with mul: the fold starts from 0, so every reward would be"
            " 0; start with add"
        )
    elif leading == "mul":
        yield (
            f"reward.combine_ops={ops} with reward.weights={settings.weights}: weight 0 leaves a"
            " reward out, so the fold starts with mul from 0 and every reward would be 0; let a"
            " reward with add and another weight than 0 come first"
        )


def _gates(settings: RewardConfig, rewards: Sequence[str]) -> Iterator[str]:
    gates = settings.gates
    if settings.combine == "gate" and not gates:
        yield (
            "reward.combine=gate without reward.gates: name the rewards that must hold for others"
            " to count, e.g. reward.gates=[format]"
        )
    if gates and settings.combine != "gate":
        yield (
            f"reward.gates={gates} belongs to reward.combine=gate and has no effect on"
            f" {settings.combine}: give that, or a gate to single rewards by"
            f" reward.specs.<name>.gate={gates[0]}"
        )
    for gate in gates:
        if gate not in rewards:
            yield f"reward.gates: no reward named '{gate}'{did_you_mean(gate, list(rewards))}"
    if gates and rewards and set(rewards) <= set(gates):
        yield (
            f"reward.gates={gates} names every reward: nothing is left that a gate could open;"
            " leave at least one out"
        )
    if not math.isfinite(settings.gate_above):
        yield f"reward.gate_above={settings.gate_above}: give a finite number"


def _parameters(settings: RewardConfig) -> Iterator[str]:
    for key, default, how in (
        ("soft_min_beta", 1.0, "soft_min"),
        ("lexicographic_tolerance", 0.0, "lexicographic"),
    ):
        value = getattr(settings, key)
        if not (math.isfinite(value) and value >= 0):
            yield f"reward.{key}={value}: give a finite number that is not negative"
        elif value != default and settings.combine != how:
            yield (
                f"reward.{key} belongs to reward.combine={how} and has no effect on"
                f" {settings.combine}: give that, or leave it out"
            )


def _weights(settings: RewardConfig) -> Iterator[str]:
    """Yield problems with weights that the combiner cannot apply."""
    typed: list[tuple[str, Any]] = [("reward.weights", settings.weights)]
    for source, raw in settings.by_source.items():
        typed.append((f"reward.by_source.{source}.weights", _entry(raw, "weights")))
    for name, points in settings.weight_schedules.items():
        if not schedule_problems({name: points}, [name]):
            typed.append((f"reward.weight_schedules.{name}", [weight for _, weight in points]))
    for where, raw in typed:
        # Malformed lists are reported by other checks.
        if not isinstance(raw, list | tuple) or not raw or not all(map(is_number, raw)):
            continue
        weights = list(raw)
        if settings.combine == "soft_min" and min(weights) < 0:
            yield (
                f"{where} has a negative weight and reward.combine=soft_min takes weights as shares"
                " of a mean: turn the score round instead, e.g. reward.transforms.<name>={kind:"
                " scale, factor: -1}"
            )
        if settings.combine == "lexicographic" and not set(weights) <= {-1, 0, 1}:
            yield (
                f"{where}={weights} with reward.combine=lexicographic: the order of the models"
                " decides and only a weight's sign counts; give 1, -1 (less is better) or 0 (only"
                " logged), or leave the weights out"
            )


def _by_source(settings: RewardConfig) -> Iterator[str]:
    for source, raw in settings.by_source.items():
        where = f"reward.by_source.{source}"
        if not isinstance(raw, Mapping) or not _is_names(_entry(raw, "models")):
            yield f"{where}={raw!r}: give {{models: [<name>, ...], weights: [<number>, ...]}}"
            continue
        for key in cast("Mapping[str, Any]", raw):
            if key not in _SOURCE_ENTRIES:
                yield f"{where}.{key}: no such entry{did_you_mean(str(key), _SOURCE_ENTRIES)}"
        models = _entry(raw, "models")
        if len(set(models)) < len(models):
            yield (
                f"{where}.models names one reward twice ({', '.join(models)}): give each once, with"
                " the sum of its weights"
            )
        weights = _entry(raw, "weights")
        if weights is None:
            continue
        if not isinstance(weights, list | tuple) or not all(map(is_number, weights)):
            yield f"{where}.weights={weights!r}: give one finite number per model"
        elif len(weights) != len(models):
            yield (
                f"{where}.weights has {_count(weights, 'value')} for {_count(models, 'model')}"
                f" ({', '.join(models)}): give one per model"
            )


def _entry(raw: Any, key: str) -> Any:
    """Return a mapping's entry as it was typed, None without the entry, or for another type."""
    if not isinstance(raw, Mapping):
        return None
    return cast("Mapping[str, Any]", raw).get(key)


def _transforms(settings: RewardConfig, rewards: Sequence[str]) -> Iterator[str]:
    for name, raw in settings.transforms.items():
        where = f"reward.transforms.{name}"
        if name not in rewards:
            yield f"{where}: no reward of that name{did_you_mean(str(name), list(rewards))}"
        try:
            parse_transforms(raw, where)
        except ConfigError as error:
            yield from error.problems


def _is_names(value: Any) -> bool:
    """Return whether this is a list with at least one text."""
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(isinstance(each, str) for each in value)


def _count(items: Sequence[Any], word: str) -> str:
    plural = "" if len(items) == 1 else "s"
    return f"{len(items)} {word}{plural}"

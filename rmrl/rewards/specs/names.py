"""Which rewards a configuration names, with which weight, for which rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.rewards.specs.spec import SourceWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """One component as it was asked for."""

    name: str
    weight: float
    combine_op: str
    sources: SourceWeights | None
    """None: every row has it."""


def named_rewards(config: RewardConfig) -> list[Named]:
    """`reward.models` in order, then what only `reward.by_source` names. Raises ConfigError where
    by_source is malformed."""
    count = len(config.models)
    weights = (
        config.weights
        if config.weights is not None and len(config.weights) == count
        else [1.0] * count
    )
    ops = (
        config.combine_ops
        if config.combine_ops is not None and len(config.combine_ops) == count
        else ["add"] * count
    )
    by_source = _weights_by_source(config)
    default = dict(zip(config.models, map(float, weights), strict=True))
    op_of = dict(zip(config.models, ops, strict=True))
    names = dict.fromkeys(
        [*config.models, *(name for table in by_source.values() for name in table)]
    )
    return [
        Named(
            name=name,
            weight=default.get(name, next((t[name] for t in by_source.values() if name in t), 1.0)),
            combine_op=op_of.get(name, "add"),
            sources=(
                SourceWeights(
                    {s: table.get(name) for s, table in by_source.items()}, default.get(name)
                )
                if by_source
                else None
            ),
        )
        for name in names
    ]


def _weights_by_source(config: RewardConfig) -> dict[str, dict[str, float]]:
    problems: list[str] = []
    found: dict[str, dict[str, float]] = {}
    for source, entry in config.by_source.items():
        where = f"reward.by_source.{source}"
        problem = _source_problem(where, entry)
        if problem:
            problems.append(problem)
            continue
        models = [str(name) for name in entry["models"]]
        weights = entry.get("weights") or [1.0] * len(models)
        found[source] = dict(zip(models, map(float, weights), strict=True))
    if problems:
        raise ConfigError(problems)
    return found


def _source_problem(where: str, entry: Any) -> str:
    shape = f"give {{models: [a,b], weights: [0.3,0.5]}}, e.g. {where}.models=[a,b]"
    if (
        not isinstance(entry, Mapping)
        or not isinstance(entry.get("models"), list | tuple)
        or set(entry) - {"models", "weights"}
    ):
        return f"{where}={entry!r}: {shape}"
    weights = entry.get("weights")
    if weights is None:
        return ""
    if not isinstance(weights, list | tuple) or any(
        isinstance(w, bool) or not isinstance(w, int | float) for w in weights
    ):
        return f"{where}.weights={weights!r}: {shape}"
    if len(weights) != len(entry["models"]):
        return (
            f"{where}.weights has {len(weights)} values for {len(entry['models'])} models: give one"
            " weight per model"
        )
    return ""

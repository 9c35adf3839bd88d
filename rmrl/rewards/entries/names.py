"""The rewards that a configuration names: their place in the sum and the rows they score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.rewards.specs.spec import SourceWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One component as the configuration names it, before its own section is read."""

    name: str
    """Its section is `reward.specs.<name>`."""
    model_name: str
    """Name in metrics and columns for a model reward. Other rewards keep `name`."""
    weight: float = 1.0
    combine_op: str = "add"
    sources: SourceWeights | None = None
    """None: every row has the component."""
    part_of: str = ""
    """The ensemble that names the component. "": the configuration names it."""
    gates: tuple[str, ...] = ()
    """Gates besides those in the component's section: a member has its ensemble's gates."""


def named_rewards(config: RewardConfig) -> list[Component]:
    """Return `reward.models` in order, then the names that only `reward.by_source` has. Raises
    ConfigError where by_source is malformed.

    `model_name` is a checkpoint path's last part where no other name ends in that part.
    """
    count = len(config.models)
    weights = [1.0] * count
    if config.weights is not None and len(config.weights) == count:
        weights = config.weights
    ops = ["add"] * count
    if config.combine_ops is not None and len(config.combine_ops) == count:
        ops = config.combine_ops
    by_source = _weights_by_source(config)
    default = dict(zip(config.models, map(float, weights), strict=True))
    op_of = dict(zip(config.models, ops, strict=True))
    weight_of: dict[str, float] = dict(default)
    for table in by_source.values():
        for name, weight in table.items():
            weight_of.setdefault(name, weight)
    last_parts = Counter(Path(name).name for name in weight_of)
    rewards: list[Component] = []
    for name, weight in weight_of.items():
        sources = None
        if by_source:
            named = {source: table.get(name) for source, table in by_source.items()}
            sources = SourceWeights(named, default.get(name))
        model_name = Path(name).name
        if "/" not in name or last_parts[model_name] > 1:
            model_name = name
        component = Component(
            name=name,
            model_name=model_name,
            weight=weight,
            combine_op=op_of.get(name, "add"),
            sources=sources,
        )
        rewards.append(component)
    return rewards


def _weights_by_source(config: RewardConfig) -> dict[str, dict[str, float]]:
    problems: list[str] = []
    tables: dict[str, dict[str, float]] = {}
    for source, entry in config.by_source.items():
        where = f"reward.by_source.{source}"
        problem = _source_problem(where, entry)
        if problem:
            problems.append(problem)
            continue
        models = [str(name) for name in entry["models"]]
        weights = entry.get("weights") or [1.0] * len(models)
        tables[source] = dict(zip(models, map(float, weights), strict=True))
    if problems:
        raise ConfigError(problems)
    return tables


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
    if not isinstance(weights, list | tuple):
        return f"{where}.weights={weights!r}: {shape}"
    for weight in weights:
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            return f"{where}.weights={weights!r}: {shape}"
    if len(weights) != len(entry["models"]):
        return (
            f"{where}.weights has {len(weights)} values for {len(entry['models'])} models: give one"
            " weight per model"
        )
    return ""

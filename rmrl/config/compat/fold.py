"""The older section's fold: it starts from the rule's score, and further terms count where that
score is 1.

In VeRL-with-RMs every further term is 0 where the rule's score is not 1, and reward models are
computed where it is not 0:

    reward = rule
    reward += bge_weight * similarity
    per model:  add: reward += w * s    mul: reward *= w * s
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.config.schema import RewardConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One term in the fold behind the rule."""

    name: str
    weight: float
    operation: str
    spec: Mapping[str, Any]


def place_terms(reward: RewardConfig, terms: Sequence[Term]) -> None:
    """Make `terms` the rewards, in order. Entries in `reward.specs` are merged with the older
    lists' and take precedence."""
    reward.models = []
    reward.weights = []
    reward.combine = "fold"
    reward.combine_ops = []
    specs: dict[str, Any] = {}
    for term in terms:
        reward.models.append(term.name)
        reward.weights.append(term.weight)
        reward.combine_ops.append(term.operation)
        specs[term.name] = dict(term.spec)
    for name, typed in reward.specs.items():
        specs[name] = {**specs.get(name, {}), **typed} if isinstance(typed, dict) else typed
    reward.specs = specs


def start_from(reward: RewardConfig, rules: Mapping[str, Sequence[str]]) -> None:
    """Put rules in front of all terms, and count the terms only where their rule's score is 1.

    `rules`: rule -> the data sources whose rows it scores. A single rule scores all rows.
    """
    terms = list(reward.models)
    weights = list(reward.weights or [1.0] * len(terms))
    reward.models = [*rules, *terms]
    reward.weights = [*([1.0] * len(rules)), *weights]
    reward.combine = "fold"
    reward.combine_ops = [*(["add"] * len(rules)), *(reward.combine_ops or ["add"] * len(terms))]
    gate = {"gate": list(rules), "counts_at": dict.fromkeys(rules, 1)}
    for name in terms:
        typed = reward.specs.get(name, {})
        reward.specs[name] = {**gate, **typed} if isinstance(typed, dict) else typed
    if len(rules) > 1:
        for rule, sources in rules.items():
            for source in sources:
                reward.by_source[source] = {"models": [rule, *terms], "weights": [1.0, *weights]}

"""How a response's reward came about: each component's score, the score behind its transforms, its
weight, and how the components are combined.

Transforms that look at one score alone are applied here. Others compare responses with each other
(standardize, rank, ...) and are named only, since a file may hold only some that they compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmrl.api import Chain, Rows, chain_of, parse_transforms
from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The configuration's rules for combining scores, empty where there is none."""

    configured: bool = False
    combine: str = ""
    gates: tuple[str, ...] = ()
    gate_above: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each component outside reward.by_source."""
    chains: Mapping[str, Chain | None] = field(default_factory=dict)
    """Transforms of each component that has some, None where the entries cannot be read."""

    def as_json(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the rules as the page reads them."""
        labels: dict[str, str] = {}
        for name in names:
            if name not in self.chains:
                continue
            labels[name] = "cannot be read"
            chain = self.chains[name]
            if chain is not None:
                labels[name] = " → ".join(chain.names)
        return {
            "known": self.configured,
            "combine": self.combine,
            "gates": list(self.gates),
            "gateAbove": self.gate_above,
            "transforms": labels,
        }

    def transformed(self, name: str, scores_N: np.ndarray) -> np.ndarray | None:
        """Return the scores behind the component's transforms, None where these compare responses,
        or without a configuration."""
        if not self.configured:
            return None
        if name not in self.chains:
            return scores_N
        chain = self.chains[name]
        if chain is None or not chain.per_value:
            return None
        count = len(scores_N)
        rows = Rows(
            group_ids_B=np.zeros(count, dtype=np.int64),
            lengths_B=np.zeros(count, dtype=np.int64),
            truncated_B=np.zeros(count, dtype=bool),
            sources=("",) * count,
        )
        return chain.apply(scores_N, rows, np.isfinite(scores_N), learn=False)


def rules_of(reward: Mapping[str, Any]) -> Rules:
    """Return the rules in a section `reward` as it stands in a file."""
    if not reward:
        return Rules()
    defaults = RewardConfig()
    names = [str(name) for name in reward.get("models") or []]
    weights = reward.get("weights") or [1.0] * len(names)
    shared = reward.get("transforms") or {}
    specs = reward.get("specs") or {}
    by_name = dict(zip(names, weights, strict=False))
    chains: dict[str, Chain | None] = {}
    for name in names:
        entries = shared.get(name)
        spec = specs.get(name)
        if isinstance(spec, Mapping) and spec.get("transform") is not None:
            entries = spec["transform"]
        if isinstance(spec, Mapping) and spec.get("watch") is not None:
            by_name[name] = 0.0
        if entries is not None:
            try:
                chains[name] = chain_of(parse_transforms(entries, name), name)
            except ConfigError:
                chains[name] = None
    return Rules(
        configured=True,
        combine=str(reward.get("combine") or defaults.combine),
        gates=tuple(reward.get("gates") or ()),
        gate_above=float(reward.get("gate_above") or defaults.gate_above),
        weights=by_name,
        chains=chains,
    )

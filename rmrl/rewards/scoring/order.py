"""Which component waits for which: gates, products, ensembles, and what may run while responses
still come in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.specs.spec import RewardSpec

COSTS: Mapping[str, int] = {"embed": 1, "pooling": 2, "token_pooling": 2, "generate": 4}
"""Rank of an engine's runner by what one response costs; rules have 0, servers 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Positions of specs. `ensembles` are computed from `members` when all else is there."""

    gates: tuple[tuple[int, ...], ...]
    cheaper: tuple[tuple[int, ...], ...]
    """Of each component: those that are asked before it because a 0 of theirs settles the row."""
    streamable: tuple[int, ...]
    deferred: tuple[int, ...]
    members: Mapping[int, tuple[int, ...]]


def graph_of(specs: Sequence[RewardSpec], *, how: str, scheduled: Collection[str] = ()) -> Graph:
    """`how` is reward.combine, `scheduled` are names whose weight changes. Gates and members are
    checked names."""
    at = {spec.name: c for c, spec in enumerate(specs)}
    members = {
        c: tuple(at[name] for name in spec.options.of)
        for c, spec in enumerate(specs)
        if spec.kind == "ensemble"
    }
    gates = tuple(tuple(at[name] for name in spec.gates) for spec in specs)
    cheaper = tuple(
        _cheaper(c, specs, scheduled) if how == "product" and c not in members else ()
        for c in range(len(specs))
    )
    streamable = {c for c in range(len(specs)) if c not in members and _streams(specs[c])}
    for _ in (
        specs
    ):  # what waits for something deferred is deferred as well, through chains of any length
        streamable = {c for c in streamable if streamable.issuperset((*gates[c], *cheaper[c]))}
    asked = [c for c in range(len(specs)) if c not in members]
    return Graph(
        gates=gates,
        cheaper=cheaper,
        streamable=tuple(sorted(streamable)),
        deferred=tuple(c for c in asked if c not in streamable),
        members=members,
    )


def cost(spec: RewardSpec) -> int:
    """Rank of what asking costs; see COSTS."""
    engines = max((COSTS[engine.runner] for engine in spec.engines.values()), default=0)
    return max(engines, 3 if spec.remote is not None else 0)


def _cheaper(c: int, specs: Sequence[RewardSpec], scheduled: Collection[str]) -> tuple[int, ...]:
    """Whose 0 settles a product: scores that count everywhere, as they are. A transform may lift a
    0, a weight of 0 only watches."""
    return tuple(
        other
        for other, spec in enumerate(specs)
        if cost(spec) < cost(specs[c])
        and spec.weight != 0
        and not (
            spec.transforms
            or spec.part_of
            or spec.gates
            or spec.sources
            or spec.kind == "ensemble"
            or spec.name in scheduled
        )
    )


def _streams(spec: RewardSpec) -> bool:
    """Nothing of it runs on the policy's devices, and it need not see a whole group at once."""
    whole_groups = getattr(REWARD_KINDS[spec.kind], "whole_groups", False)
    return not (whole_groups or spec.whole_groups) and all(
        engine.pool for engine in spec.engines.values()
    )

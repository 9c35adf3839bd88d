"""Dependencies between components: gates, products, ensembles, and components that run while
responses still come in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.shared.rendering import reads_all_at_once
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms.chain import compared

COSTS: Mapping[str, int] = {"embed": 1, "pooling": 2, "token_pooling": 2, "generate": 4}
"""Rank of an engine's runner by one response's cost. Rules have 0, servers 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Positions of specs. `ensembles` are computed from `members` when everything else is there."""

    gates: tuple[tuple[int, ...], ...]
    cheaper: tuple[tuple[int, ...], ...]
    """For each component: the components that run before it because their 0 settles the row."""
    streamable: tuple[int, ...]
    """Components that score rows as they come."""
    ahead: tuple[int, ...]
    """Components whose requests can be rendered as rows come, for engines that have room later."""
    deferred: tuple[int, ...]
    """Components that start with all rows, without the components in `ahead`."""
    members: Mapping[int, tuple[int, ...]]
    drawn_in_groups: frozenset[int]
    """Components that are asked about all responses to a prompt or none, where they are not asked
    about all rows."""


def graph_of(specs: Sequence[RewardSpec], *, how: str, scheduled: Collection[str] = ()) -> Graph:
    """Build the graph. `how` is reward.combine. `scheduled` has the names whose weight changes.
    Gates and members are checked names."""
    index = {spec.name: c for c, spec in enumerate(specs)}
    members: dict[int, tuple[int, ...]] = {}
    gates: list[tuple[int, ...]] = []
    cheaper: list[tuple[int, ...]] = []
    streamable: set[int] = set()
    # Those that need all responses to a prompt at once.
    grouped: set[int] = set()
    drawn_in_groups: set[int] = set()
    for c, spec in enumerate(specs):
        if REWARD_KINDS[spec.kind].whole_groups or spec.whole_groups:
            grouped.add(c)
        gates.append(tuple(index[name] for name in spec.gates))
        cheaper.append(())
        if REWARD_KINDS[spec.kind].combines:
            members[c] = tuple(index[name] for name in spec.options.of)
            continue
        # A watcher is to see the responses that the reward rejects as well.
        if how == "product" and spec.watch is None:
            cheaper[c] = _cheaper(c, specs, scheduled)
        # Streams if it needs neither the policy's devices nor all responses of a group at once.
        if spec.watch is not None and (c in grouped or "group" in compared(spec.transforms)):
            drawn_in_groups.add(c)
        if c not in grouped and all(engine.pool for engine in spec.engines.values()):
            streamable.add(c)
    # A component that waits for a deferred one is deferred as well, through chains of any length.
    for _ in specs:
        for c in sorted(streamable):
            if not streamable.issuperset((*gates[c], *cheaper[c])):
                streamable.discard(c)
    deferred = set(range(len(specs))) - set(members) - streamable
    ahead: set[int] = set()
    for c in deferred:
        together = c in grouped or reads_all_at_once(specs[c])
        if not (together or gates[c] or cheaper[c]):
            ahead.add(c)
    return Graph(
        gates=tuple(gates),
        cheaper=tuple(cheaper),
        streamable=tuple(sorted(streamable)),
        ahead=tuple(sorted(ahead)),
        deferred=tuple(sorted(deferred - ahead)),
        members=members,
        drawn_in_groups=frozenset(drawn_in_groups),
    )


def cost(spec: RewardSpec) -> int:
    """Return the rank of one score's cost, from COSTS."""
    ranks = [COSTS[engine.runner] for engine in spec.engines.values()]
    if spec.remote is not None:
        ranks.append(3)
    return max(ranks, default=0)


def _cheaper(c: int, specs: Sequence[RewardSpec], scheduled: Collection[str]) -> tuple[int, ...]:
    """Return the components whose 0 settles a product: their scores count everywhere and unchanged.
    A transform may lift a 0. A component with weight 0 only observes."""
    others: list[int] = []
    for other, spec in enumerate(specs):
        combines = REWARD_KINDS[spec.kind].combines
        conditional = spec.part_of or spec.gates or spec.sources or combines
        changed = spec.transforms or spec.weight == 0 or spec.name in scheduled
        if not conditional and not changed and cost(spec) < cost(specs[c]):
            others.append(other)
    return tuple(others)

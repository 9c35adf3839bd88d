"""Fair use of engines by several request owners, such as a server's clients.

A batch from training or from a file has no owner. Such a batch has the engines to itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar


@dataclass(slots=True, eq=False)
class Client:
    """Somebody whose batches get an equal share of the engines."""

    served: int = 0
    """Number of the last call that held this client's requests. 0: no call yet."""


@dataclass(slots=True, eq=False)
class Owner:
    """One batch among others that are scored at the same time. Its requests wait for its own
    participants alone."""

    client: Client = field(default_factory=Client)


@dataclass(slots=True)
class Sharing:
    """Settings for a broker whose requests have owners, and the count of their calls."""

    call_requests: int = 256
    """An engine call ends with the request that reaches this number, so that later owners wait for
    at most one such call."""
    turn_s: float = 5.0
    """Seconds that requests wait for an engine that needs the memory of an engine in use."""
    check_s: float = 0.5
    calls: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


class OwnedRequests(Protocol):
    """One owner's requests to one engine."""

    requests: list[Any]
    since: float
    """Time in the running loop when the requests came."""
    alone: bool

    @property
    def owner(self) -> Owner | None: ...


Asked = TypeVar("Asked", bound=OwnedRequests)


def next_share(asks: Sequence[Asked], sharing: Sharing) -> list[Asked]:
    """Return the requests for an engine's next call. Requests without an owner are all in. Owned
    requests come from the clients who were served longest ago, one part from each before a second
    one, up to `sharing.call_requests`."""
    unowned = [ask for ask in asks if ask.owner is None]
    if len(unowned) == len(asks):
        return unowned
    for ask in asks:
        if ask.alone:
            return [ask]
    chosen = unowned
    size = sum(len(ask.requests) for ask in chosen)
    number = next(sharing.calls)
    for ask in _by_turns(asks):
        if size >= sharing.call_requests:
            break
        chosen.append(ask)
        size += len(ask.requests)
        assert ask.owner is not None
        ask.owner.client.served = number
    return chosen


def oldest_wait(asks: Sequence[OwnedRequests], now: float) -> float | None:
    """Return the seconds that the oldest owned request has waited at `now`. None without owned
    requests."""
    times = [ask.since for ask in asks if ask.owner is not None]
    return now - min(times) if times else None


def _by_turns(asks: Sequence[Asked]) -> list[Asked]:
    """Return the owned requests: every client's first part, then the second parts, and so on.
    Within a round the client who was served longest ago comes first."""
    parts: dict[Client, int] = {}
    ranked: list[tuple[int, int, int]] = []
    for position, ask in enumerate(asks):
        if ask.owner is not None:
            client = ask.owner.client
            part = parts.get(client, 0)
            parts[client] = part + 1
            ranked.append((part, client.served, position))
    return [asks[position] for _, _, position in sorted(ranked)]

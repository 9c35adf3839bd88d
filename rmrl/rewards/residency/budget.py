"""Memory that engines may hold, by place and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that one place's engines may hold on each of its devices (on CPU: in memory)."""

    scoring_bytes: int
    idle_bytes: int
    """Limit while nothing is scored: the memory that the policy leaves while it samples and
    trains."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Room by place: "" for the policy's devices, else a pool's name. An unlisted place is
    unlimited."""

    places: Mapping[str, Room] = field(default_factory=dict)
    exact_pinned: bool = False
    """Whether sleeping engines' page-locked host memory must not be rounded up to powers of two."""

    def less(self, place: str, count: int, *, least: int) -> Budget:
        """Return the budget with `count` bytes per device less at a place, but at least `least`
        while scoring."""
        if place not in self.places:
            return self
        room = self.places[place]
        smaller = Room(
            max(room.scoring_bytes - count, min(least, room.scoring_bytes)),
            max(room.idle_bytes - count, 0),
        )
        return replace(self, places={**self.places, place: smaller})

    def scoring(self, place: str) -> int | None:
        """Return the bytes per device while scoring. None: unlimited."""
        if place not in self.places:
            return None
        return self.places[place].scoring_bytes

    def idle(self, place: str) -> int | None:
        """Return the bytes per device while nothing is scored. None: unlimited."""
        if place not in self.places:
            return None
        return self.places[place].idle_bytes

"""The memory plan: how many bytes each claim uses, on which device and in which phase.

A run is refused before anything is loaded if some phase cannot fit. The minimum that a plan needs
is one engine awake in a place (the largest) and the others put away. The remaining budget is used
too: `scoring_bytes` and `idle_bytes` are the bytes that a place's engines may occupy, so that
engines which fit stay awake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from rmrl.columns import aligned
from rmrl.errors import MemoryPlanError

PHASES = ("rollout", "score", "train")
MEMORY = "memory"
"""The machine's own memory, where there is no other device."""


_REMEDY = (
    "Use smaller models or KV caches (rollout.kv_cache_bytes, reward.engine.kv_cache_bytes,"
    " gpu_memory_utilization), reward.engine.put_away=unload, fewer reward.engine.replicas"
    " (null takes all devices: try reward.engine.replicas=1), residency=auto, offloading,"
    " or raise trainer.memory_budget_gb"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One engine's or role's memory on each device, in bytes: awake and put away."""

    who: str
    what: str
    """Checkpoint or role, for people."""
    awake_bytes: int
    away_bytes: int
    when: tuple[str, ...]
    """Phases in which it is awake. In the others it holds `away_bytes`."""
    devices: tuple[str, ...] = (MEMORY,)
    place: str | None = None
    """Engines of rewards: their pool, "" on the policy's devices. None: the policy itself."""
    held_bytes: int = 0
    """Of the model that trains: bytes awake without activations."""
    alternates: bool = False
    """Takes turns with the other alternating claims of its place: only the largest counts as
    awake."""
    pinned: bool = False
    """Page-locked by an engine that sleeps: torch rounds such blocks up to powers of two, to at
    most twice their size, unless an engine's environment forbids it."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """`budgets`: bytes that may be used on each device, in the printed plan's order."""

    claims: Sequence[Claim]
    budgets: Mapping[str, int]
    remedies: Mapping[str, str] = field(default_factory=dict)
    """Changes to make where a device is too small. A device without an entry has the general
    advice."""

    def peak(self, phase: str, device: str = MEMORY) -> int:
        """Bytes in use on a device in a phase: among alternating engines the largest is awake,
        everything that can be put away is."""
        places = {claim.place for claim in self._on(device)}
        return sum(_least(self._at(device, place), phase) for place in places)

    def check(self, advice: Callable[[], str] = str) -> None:
        """Raise MemoryPlanError naming the device, the phase, its need, its budget, the largest
        claims and what to change. `advice` adds to that."""
        excess: dict[tuple[str, str], int] = {}
        for device, budget in self.budgets.items():
            for phase in PHASES:
                excess[device, phase] = self.peak(phase, device) - budget
        if max(excess.values(), default=0) <= 0:
            return
        device, phase = max(excess, key=lambda key: excess[key])
        by_size = sorted(self._on(device), key=lambda claim: -claim.awake_bytes)
        largest = _listed([(claim.who, claim.awake_bytes) for claim in by_size[:3]])
        raise MemoryPlanError(
            f"the memory plan does not fit: phase '{phase}' needs {gib(self.peak(phase, device))}"
            f" and {device} has {gib(self.budgets[device])}; largest: {largest}."
            f" {self.remedies.get(device, _REMEDY)}{advice()}\n{self.table()}"
        )

    def scoring_bytes(self, place: str = "") -> int:
        """Bytes that a place's engines may occupy on each of its devices while scoring, 0
        where there are none."""
        return self._room(place, ("score",))

    def idle_bytes(self, place: str = "") -> int:
        """Bytes that a place's engines may occupy while nothing is scored.

        For a pool this equals `scoring_bytes`: sampling and training use other devices.
        """
        return self._room(place, ("rollout", "train"))

    def places(self) -> list[str]:
        """Places that have engines: pools by name, then "" if any share the policy's devices."""
        places = {claim.place for claim in self.claims if claim.place is not None}
        return sorted(places, key=lambda place: (not place, place))

    def table(self) -> str:
        """Return the plan as text, a row per claim; devices with equal rows share one table."""
        devices_by_table: dict[str, list[str]] = {}
        for device in self.budgets:
            if self._on(device):
                devices_by_table.setdefault(self._device_table(device), []).append(device)
        texts: list[str] = []
        for table, devices in devices_by_table.items():
            suffix = "" if devices == [MEMORY] else f" of {_together(devices)}"
            texts.append(f"memory plan{suffix}\n{table}")
        return "\n".join(texts)

    # --- sums

    def _on(self, device: str) -> list[Claim]:
        return [claim for claim in self.claims if device in claim.devices]

    def _at(self, device: str, place: str | None) -> list[Claim]:
        return [claim for claim in self._on(device) if claim.place == place]

    def _room(self, place: str, phases: Sequence[str]) -> int:
        if place:
            phases = PHASES
        rooms: list[int] = [
            self._room_on(device, place, phases)
            for device in self.budgets
            if self._at(device, place)
        ]
        return max(0, min(rooms, default=0))

    def _room_on(self, device: str, place: str, phases: Sequence[str]) -> int:
        """How many bytes a place may occupy on one device.

        Pools that share a device (on CPU) are served by name and get no more than they can use. The
        policy's place gets the rest.
        """
        places = self.places()
        position = places.index(place)
        budget = self.budgets[device]
        for earlier in places[:position]:
            if self._at(device, earlier):
                budget -= self._room_on(device, earlier, PHASES)
        rooms: list[int] = []
        for phase in phases:
            room = budget - _least(self._at(device, None), phase)
            for later in places[position + 1 :]:
                room -= _least(self._at(device, later), phase)
            rooms.append(room)
        if not place:
            return min(rooms)
        usable = sum(claim.awake_bytes for claim in self._at(device, place))
        return min(*rooms, usable)

    # --- text

    def _device_table(self, device: str) -> str:
        rows: list[tuple[str, ...]] = [("who", "what", "where", "awake", "away", "when")]
        for claim in self._on(device):
            where = f"pool {claim.place}" if claim.place else _together(claim.devices)
            when = "always" if set(claim.when) == set(PHASES) else ", ".join(claim.when)
            if claim.alternates:
                when += " (in turn)"
            awake = gib(claim.awake_bytes)
            away = gib(claim.away_bytes)
            rows.append((claim.who, claim.what, where, awake, away, when))
        lines = aligned(rows, right=(3, 4))
        phases = self._phases()
        peaks = _listed([(phase, self.peak(phase, device)) for phase in PHASES if phase in phases])
        lines.append(f"  peak: {peaks}; budget {gib(self.budgets[device])}")
        for place in self.places():
            if any(claim.alternates for claim in self._at(device, place)):
                lines.append(self._engine_line(place))
        return "\n".join(lines)

    def _phases(self) -> set[str]:
        """Phases in which some claim is awake for a time; offline that is scoring alone."""
        phases = chain.from_iterable(
            claim.when for claim in self.claims if set(claim.when) != set(PHASES)
        )
        return set(phases) or set(PHASES)

    def _engine_line(self, place: str) -> str:
        """Return the bytes that a place's engines may keep awake, as a sentence."""
        scoring = gib(self.scoring_bytes(place))
        if place:
            return f"  engines of pool {place} may hold {scoring}"
        if self._phases() == {"score"}:
            return f"  engines may hold {scoring}"
        return f"  engines may hold {scoring} while scoring, {gib(self.idle_bytes())} otherwise"


def _least(claims: Sequence[Claim], phase: str) -> int:
    """Return the minimum bytes that one place's claims take in a phase: among alternating ones only
    the largest is awake."""
    base = 0
    turns = [0]
    for claim in claims:
        if phase not in claim.when:
            base += claim.away_bytes
        elif claim.alternates:
            base += claim.away_bytes
            turns.append(claim.awake_bytes - claim.away_bytes)
        else:
            base += claim.awake_bytes
    return base + max(turns)


def _listed(sizes: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {gib(size)}" for name, size in sizes)


def _together(devices: Sequence[str]) -> str:
    """Return device names as text, more than two shortened to the first and the last."""
    if len(devices) > 2:
        return f"{devices[0]} .. {devices[-1]}"
    return ", ".join(devices)


def gib(count: int) -> str:
    """Return bytes as text, in GiB."""
    return f"{count / 2**30:.2f} GiB"

"""The memory plan: who holds how many bytes on which device when; refused before anything is loaded
if some phase cannot fit.

The least that a plan needs is one engine of a place awake (the largest) and the others put away.
What is left over is not
wasted: `scoring_bytes` and `idle_bytes` say how much the engines of a place may hold, so that what
  fits stays awake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmrl.errors import MemoryPlanError

PHASES = ("rollout", "score", "train")
MEMORY = "memory"
"""The machine's own memory, where there is no other device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One party's memory on each of the devices it uses, in bytes, awake and put away."""

    who: str
    what: str
    """Checkpoint or role, for people."""
    awake_bytes: int
    away_bytes: int
    when: tuple[str, ...]
    """Phases in which it is awake; in the others it holds `away_bytes`."""
    devices: tuple[str, ...] = (MEMORY,)
    place: str | None = None
    """Engines of rewards: their pool, "" on the policy's devices; None: the policy itself."""
    alternates: bool = False
    """Takes turns with the other alternating claims of its place: only the largest counts as
    awake."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """`budgets`: bytes that may be used on each device, in the order of the printed plan."""

    claims: Sequence[Claim]
    budgets: Mapping[str, int]

    def peak(self, phase: str, device: str = MEMORY) -> int:
        """Bytes held on a device in a phase when its turn-takers are at their largest and nothing
        stays that need not."""
        here = self._on(device)
        return sum(
            _least([c for c in here if c.place == place], phase)
            for place in {c.place for c in here}
        )

    def check(self) -> None:
        """Raises MemoryPlanError naming the device, the phase, what it needs, what there is, and
        the largest claims."""
        over = {
            (d, p): self.peak(p, d) - budget for d, budget in self.budgets.items() for p in PHASES
        }
        if max(over.values(), default=0) <= 0:
            return
        device, phase = max(over, key=lambda which: over[which])
        largest = sorted(self._on(device), key=lambda claim: -claim.awake_bytes)[:3]
        raise MemoryPlanError(
            f"the memory plan does not fit: phase '{phase}' needs {gib(self.peak(phase, device))}"
            f" and {device} has {gib(self.budgets[device])}; largest:"
            f" {', '.join(f'{c.who} {gib(c.awake_bytes)}' for c in largest)}. Use smaller models or"
            " KV caches (rollout.kv_cache_bytes, reward.engine.kv_cache_bytes,"
            " gpu_memory_utilization), reward.engine.put_away=unload, residency=auto, offloading,"
            f" or raise trainer.memory_budget_gb\n{self.table()}"
        )

    def scoring_bytes(self, place: str = "") -> int:
        """Bytes that the engines of a place may hold on each of its devices while scoring; 0 where
        there are none."""
        return self._room(place, ("score",))

    def idle_bytes(self, place: str = "") -> int:
        """The same while nothing is scored. A pool has no such time: others sample and train
        elsewhere."""
        return self._room(place, ("rollout", "train"))

    def places(self) -> list[str]:
        """Where engines live: pools by name, then "" if any share the policy's devices."""
        return sorted(
            {c.place for c in self.claims if c.place is not None},
            key=lambda place: (not place, place),
        )

    def table(self) -> str:
        """The plan as text: who, what, where, bytes awake and away, when; one table for devices
        that look alike."""
        alike: dict[str, list[str]] = {}
        for device in self.budgets:
            if self._on(device):
                alike.setdefault(self._device_table(device), []).append(device)
        heads = {
            text: "" if devices == [MEMORY] else f" of {_together(devices)}"
            for text, devices in alike.items()
        }
        return "\n".join(f"memory plan{head}\n{text}" for text, head in heads.items())

    # --- sums

    def _on(self, device: str) -> list[Claim]:
        return [claim for claim in self.claims if device in claim.devices]

    def _room(self, place: str, phases: Sequence[str]) -> int:
        devices = [d for d in self.budgets if any(c.place == place for c in self._on(d))]
        return max(
            0,
            min(
                (self._room_on(device, place, PHASES if place else phases) for device in devices),
                default=0,
            ),
        )

    def _room_on(self, device: str, place: str, phases: Sequence[str]) -> int:
        """Pools that share a device (on CPU) are served by name and take no more than they can use;
        the policy's place gets the rest."""
        here, order = self._on(device), self.places()
        before, after = order[: order.index(place)], order[order.index(place) + 1 :]
        claims = {other: [c for c in here if c.place == other] for other in order}
        granted = sum(self._room_on(device, other, PHASES) for other in before if claims[other])
        left = [
            self.budgets[device]
            - granted
            - _least([c for c in here if c.place is None], phase)
            - sum(_least(claims[o], phase) for o in after)
            for phase in phases
        ]
        return min(*left, sum(c.awake_bytes for c in claims[place])) if place else min(left)

    # --- text

    def _device_table(self, device: str) -> str:
        rows = [
            ("who", "what", "where", "awake", "away", "when"),
            *(_row(claim) for claim in self._on(device)),
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  "
            + "  ".join(
                c.rjust(w) if i in (3, 4) else c.ljust(w)
                for i, (c, w) in enumerate(zip(r, widths, strict=True))
            ).rstrip()
            for r in rows
        ]
        phases = [phase for phase in PHASES if phase in self._phases()]
        peaks = ", ".join(f"{phase} {gib(self.peak(phase, device))}" for phase in phases)
        lines.append(f"  peak: {peaks}; budget {gib(self.budgets[device])}")
        return "\n".join([*lines, *self._engine_lines(device)])

    def _phases(self) -> set[str]:
        """Those in which anything is awake for a time: offline there is scoring alone."""
        return {
            phase for claim in self.claims for phase in claim.when if set(claim.when) != set(PHASES)
        } or set(PHASES)

    def _engine_lines(self, device: str) -> list[str]:
        """What the engines of each place may keep awake."""
        lines = []
        for place in self.places():
            claims = [c for c in self._on(device) if c.place == place and c.alternates]
            if claims:
                scoring, idle = self.scoring_bytes(place), self.idle_bytes(place)
                who = f"engines of pool {place}" if place else "engines"
                between = (
                    f" while scoring, {gib(idle)} otherwise"
                    if not place and self._phases() != {"score"}
                    else ""
                )
                lines.append(f"  {who} may hold {gib(scoring)}{between}")
        return lines


def _least(claims: Sequence[Claim], phase: str) -> int:
    """Bytes that claims of one place hold in a phase at least: of the turn-takers one is awake, the
    largest."""
    base = sum(
        c.away_bytes if c.alternates or phase not in c.when else c.awake_bytes for c in claims
    )
    turns = [c.awake_bytes - c.away_bytes for c in claims if c.alternates and phase in c.when]
    return base + max(turns, default=0)


def _row(claim: Claim) -> tuple[str, ...]:
    when = "always" if set(claim.when) == set(PHASES) else ", ".join(claim.when)
    where = f"pool {claim.place}" if claim.place else _together(claim.devices)
    turn = " (in turn)" if claim.alternates else ""
    return claim.who, claim.what, where, gib(claim.awake_bytes), gib(claim.away_bytes), when + turn


def _together(devices: Sequence[str]) -> str:
    """Names of devices, long rows shortened to the first and the last."""
    return f"{devices[0]} .. {devices[-1]}" if len(devices) > 2 else ", ".join(devices)


def gib(count: int) -> str:
    """Bytes for people."""
    return f"{count / 2**30:.2f} GiB"

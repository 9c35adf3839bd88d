"""The memory plan: who holds how many bytes when; refused before anything is loaded if some phase cannot fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmrl.errors import MemoryPlanError

PHASES = ("rollout", "score", "train")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One party's memory on one device, in bytes, awake and put away."""

    who: str
    what: str
    """Checkpoint or role, for people."""
    awake_bytes: int
    away_bytes: int
    when: tuple[str, ...]
    """Phases in which it is awake; in the others it holds `away_bytes`."""
    alternates: bool = False
    """Takes turns with the other alternating claims of its phase: only the largest counts as awake."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    claims: Sequence[Claim]
    budget_bytes: int

    def peak(self, phase: str) -> int:
        """Bytes held in a phase when its turn-takers are at their largest."""
        base = sum(claim.away_bytes if claim.alternates or phase not in claim.when else claim.awake_bytes for claim in self.claims)
        turns = [claim.awake_bytes - claim.away_bytes for claim in self.claims if claim.alternates and phase in claim.when]
        return base + max(turns, default=0)

    def check(self) -> None:
        """Raises MemoryPlanError naming the phase, what it needs, what there is, and the largest claims."""
        worst = max(PHASES, key=self.peak)
        if self.peak(worst) <= self.budget_bytes:
            return
        largest = sorted(self.claims, key=lambda claim: -claim.awake_bytes)[:3]
        raise MemoryPlanError(
            f"the memory plan does not fit: phase '{worst}' needs {gib(self.peak(worst))} and the device has {gib(self.budget_bytes)}; "
            f"largest: {', '.join(f'{c.who} {gib(c.awake_bytes)}' for c in largest)}. Use smaller models or KV caches "
            "(rollout.kv_cache_bytes, reward.engine.kv_cache_bytes, gpu_memory_utilization), reward.engine.put_away=unload, offloading, "
            f"or raise trainer.memory_budget_gb\n{self.table()}"
        )

    def table(self) -> str:
        """The plan as text: who, what, bytes awake and away, when."""
        width = max([len(c.who) for c in self.claims] + [3])
        what = max([len(c.what) for c in self.claims] + [4])
        rows = [f"{'who':<{width}}  {'what':<{what}}  {'awake':>9}  {'away':>9}  when"]
        for c in self.claims:
            when = ", ".join(c.when) + (" (in turn)" if c.alternates else "")
            rows.append(f"{c.who:<{width}}  {c.what:<{what}}  {gib(c.awake_bytes):>9}  {gib(c.away_bytes):>9}  {when}")
        peaks = ", ".join(f"{phase} {gib(self.peak(phase))}" for phase in PHASES)
        return "\n".join(["memory plan", *("  " + row for row in rows), f"  peak: {peaks}; budget {gib(self.budget_bytes)}"])


def gib(count: int) -> str:
    """Bytes for people."""
    return f"{count / 2**30:.2f} GiB"

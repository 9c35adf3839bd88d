"""Statistics on a whole file's scores, computed batch by batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from operator import attrgetter
from typing import Any

import numpy as np

from rmrl.rewards.session.missing import VerdictCounts
from rmrl.telemetry.names import engine_seconds
from rmrl.types import RewardBatch, ScoreResult


@dataclass(slots=True)
class ScoreMoments:
    """Count, mean and squared distance from the mean of finite numbers."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: np.ndarray) -> None:
        """Add numbers; NaN and infinities do not count."""
        finite = values[np.isfinite(values)]
        if not len(finite):
            return
        mean = float(finite.mean())
        squares = float(((finite - mean) ** 2).sum())
        self.merge(ScoreMoments(len(finite), mean, squares))

    def merge(self, other: ScoreMoments) -> None:
        """Add another one's numbers."""
        if not other.count:
            return
        count = self.count + other.count
        delta = other.mean - self.mean
        # Merged batch by batch (Chan et al.): the difference of two large sums of squares would
        # lose the digits that matter.
        self.squares += other.squares + delta**2 * self.count * other.count / count
        self.mean += delta * other.count / count
        self.count = count

    def to_json(self) -> dict[str, float]:
        """Return the fields with all digits."""
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def __str__(self) -> str:
        if not self.count:
            return "-"
        return f"{self.mean:.4g} +- {math.sqrt(self.squares / self.count):.3g}"


@dataclass(slots=True)
class Cost:
    """What one component's verdicts took: those that were computed, and those from the cache."""

    computed: int = 0
    """Verdicts, missing ones included."""
    cached: int = 0
    tokens_in: int = 0
    """Tokens that a model read, of computed verdicts."""
    tokens_out: int = 0
    cached_tokens_in: int = 0
    """Tokens that the cache saved."""
    cached_tokens_out: int = 0
    latency_s: float = 0.0
    """Sum over the computed verdicts that have one; verdicts of a batch are computed at the same
    time."""

    def add(self, results: Sequence[ScoreResult]) -> None:
        """Add results; skipped ones cost nothing."""
        computed: list[ScoreResult] = []
        for result in results:
            if result.status == "skipped":
                continue
            if result.cached:
                self.cached += 1
                self.cached_tokens_in += result.tokens_in
                self.cached_tokens_out += result.tokens_out
            else:
                computed.append(result)
        self.computed += len(computed)
        self.tokens_in += sum(map(attrgetter("tokens_in"), computed))
        self.tokens_out += sum(map(attrgetter("tokens_out"), computed))
        self.latency_s += sum(map(attrgetter("latency_s"), computed))

    def merge(self, other: Cost) -> None:
        """Add further batches' verdicts."""
        for entry in fields(self):
            total = getattr(self, entry.name) + getattr(other, entry.name)
            setattr(self, entry.name, total)


@dataclass(slots=True)
class Summary:
    """The reward's and each component's mean and (population) standard deviation, and what is
    missing."""

    rows: int = 0
    """Responses."""
    kept: int = 0
    reward: ScoreMoments = field(default_factory=ScoreMoments)
    components: dict[str, ScoreMoments] = field(default_factory=dict)
    verdicts: dict[str, VerdictCounts] = field(default_factory=dict)
    in_reward: dict[str, VerdictCounts] = field(default_factory=dict)
    """Verdicts on responses where the component takes part in the reward, to which budgets
    apply."""
    costs: dict[str, Cost] = field(default_factory=dict)
    seconds: float = 0.0
    """Time in which rows were scored, loading of engines included."""
    rows_read: int | None = None
    """Rows of the files, the quarantined ones included; None where none are quarantined but a bad
    row ends the job."""
    quarantined: int = 0
    busy_s: dict[str, float] = field(default_factory=dict)
    """Reward -> seconds in which it was at work or waited for its engine's turn. Rewards work side
    by side, so they may add up to more than `seconds`; of several machines, the sum."""
    engines: dict[str, dict[str, float]] = field(default_factory=dict)
    """Engine, named by the rewards that share it -> `load_s`, `wake_s`, `sleep_s` and `unload_s`,
    as far as it did these."""

    def add(self, rewards: RewardBatch, *, busy_s: Mapping[str, float] | None = None) -> None:
        """Add a batch. `busy_s`: see `Scorer.take_seconds`."""
        add_to(self.busy_s, busy_s or {})
        for label, seconds in engine_seconds(rewards.metrics).items():
            add_to(self.engines.setdefault(label, {}), seconds)
        self.rows += len(rewards.rewards_B)
        self.kept += int(rewards.keep_B.sum())
        self.reward.add(rewards.rewards_B)
        values_BC = rewards.scores.values_BC
        for c, (name, results) in enumerate(
            zip(rewards.scores.names, rewards.scores.results, strict=True)
        ):
            self.components.setdefault(name, ScoreMoments()).add(values_BC[:, c])
            self.verdicts.setdefault(name, VerdictCounts()).add(results)
            self.costs.setdefault(name, Cost()).add(results)
            takes_part_B = None if rewards.takes_part_BC is None else rewards.takes_part_BC[:, c]
            self.in_reward.setdefault(name, VerdictCounts()).add(results, takes_part_B)

    def merge(self, other: Summary) -> None:
        """Add another one's batches."""
        self.rows += other.rows
        self.kept += other.kept
        self.reward.merge(other.reward)
        for name, moments in other.components.items():
            self.components.setdefault(name, ScoreMoments()).merge(moments)
        for name, counts in other.verdicts.items():
            self.verdicts.setdefault(name, VerdictCounts()).merge(counts)
        for name, counts in other.in_reward.items():
            self.in_reward.setdefault(name, VerdictCounts()).merge(counts)
        for name, cost in other.costs.items():
            self.costs.setdefault(name, Cost()).merge(cost)
        self.seconds += other.seconds
        add_to(self.busy_s, other.busy_s)
        for label, seconds in other.engines.items():
            add_to(self.engines.setdefault(label, {}), seconds)

    def table(self) -> str:
        """Format one line per component and one for the reward."""
        width = max(map(len, [*self.components, "reward"]))
        lines = ["scores", f"  {'':<{width}}  {'mean +- std':<20}  no verdict"]
        for name, moments in self.components.items():
            counts = self.verdicts[name]
            missing = counts.without_number().most_common()
            reasons = [f"{count} {status}" for status, count in missing]
            lines.append(f"  {name:<{width}}  {moments!s:<20}  {', '.join(reasons) or '0'}")
        lines.append(f"  {'reward':<{width}}  {self.reward!s:<20}  {self.rows - self.kept}")
        if self.rows_read is not None:
            lines.append(
                f"{self.rows_read} rows read = {self.rows_read - self.quarantined} scored +"
                f" {self.quarantined} quarantined"
            )
        return "\n".join(map(str.rstrip, lines))

    def times(self) -> str:
        """Format where the time went: a line per reward and per engine, "" where none is known."""
        if not self.busy_s:
            return ""
        width = max(map(len, self.busy_s))
        lines = [f"where {self.seconds:.1f} s went"]
        for name, seconds in self.busy_s.items():
            lines.append(f"  {name:<{width}}  {seconds:.1f} s")
        for label, engine in self.engines.items():
            parts: list[str] = [
                f"{what.removesuffix('_s')} {seconds:.1f} s" for what, seconds in engine.items()
            ]
            lines.append(f"  engine of {label}: {', '.join(parts)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the content that `from_json` reads."""
        return {
            "rows": self.rows,
            "kept": self.kept,
            "reward": self.reward.to_json(),
            "components": {name: moments.to_json() for name, moments in self.components.items()},
            "verdicts": {name: counts.to_json() for name, counts in self.verdicts.items()},
            "in_reward": {name: counts.to_json() for name, counts in self.in_reward.items()},
            "costs": {name: asdict(cost) for name, cost in self.costs.items()},
            "seconds": self.seconds,
            "busy_s": self.busy_s,
            "engines": self.engines,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Summary:
        """Restore the summary that `to_json` returned."""
        summary = cls(
            rows=content["rows"], kept=content["kept"], reward=ScoreMoments(**content["reward"])
        )
        for name, moments in content["components"].items():
            summary.components[name] = ScoreMoments(**moments)
        for name, counts in content["verdicts"].items():
            summary.verdicts[name] = VerdictCounts.from_json(counts)
        for name, counts in content["in_reward"].items():
            summary.in_reward[name] = VerdictCounts.from_json(counts)
        for name, cost in content.get("costs", {}).items():
            summary.costs[name] = Cost(**cost)
        summary.seconds = content.get("seconds", 0.0)
        summary.busy_s = dict(content.get("busy_s", {}))
        for label, seconds in content.get("engines", {}).items():
            summary.engines[label] = dict(seconds)
        return summary


def add_to(totals: dict[str, float], further: Mapping[str, float]) -> None:
    """Add each name's numbers."""
    for name, amount in further.items():
        totals[name] = totals.get(name, 0.0) + amount

"""What a whole file's scores came to, without keeping them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmrl.rewards.scoring.missing import VerdictCounts
from rmrl.types import RewardBatch


@dataclass(slots=True)
class Moments:
    """Count, mean and squared distance from the mean of finite numbers."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: np.ndarray) -> None:
        """NaN does not count."""
        finite = values[np.isfinite(values)]
        if not len(finite):
            return
        mean, count = float(finite.mean()), self.count + len(finite)
        apart = mean - self.mean
        # Joined part by part (Chan et al.): the difference of two large sums of squares would lose
        # the digits that matter.
        self.squares += (
            float(((finite - mean) ** 2).sum()) + apart**2 * self.count * len(finite) / count
        )
        self.mean += apart * len(finite) / count
        self.count = count

    def to_json(self) -> dict[str, float]:
        """All digits."""
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def __str__(self) -> str:
        if not self.count:
            return "-"
        return f"{self.mean:.4g} +- {math.sqrt(self.squares / self.count):.3g}"


@dataclass(slots=True)
class Summary:
    """Mean and standard deviation (of the population) of the reward and of each component, and what
    is missing."""

    rows: int = 0
    """Responses."""
    kept: int = 0
    reward: Moments = field(default_factory=Moments)
    components: dict[str, Moments] = field(default_factory=dict)
    verdicts: dict[str, VerdictCounts] = field(default_factory=dict)
    in_reward: dict[str, VerdictCounts] = field(default_factory=dict)
    """Of the responses where the component takes part in the reward: what budgets are about."""

    def add(self, rewards: RewardBatch) -> None:
        """One more batch."""
        self.rows += len(rewards.rewards_B)
        self.kept += int(rewards.keep_B.sum())
        self.reward.add(rewards.rewards_B)
        for c, (name, results) in enumerate(
            zip(rewards.scores.names, rewards.scores.results, strict=True)
        ):
            self.components.setdefault(name, Moments()).add(rewards.scores.values_BC[:, c])
            self.verdicts.setdefault(name, VerdictCounts()).add(results)
            takes_part_B = None if rewards.takes_part_BC is None else rewards.takes_part_BC[:, c]
            self.in_reward.setdefault(name, VerdictCounts()).add(results, takes_part_B)

    def table(self) -> str:
        """One line per component and one for the reward."""
        width = max([len(name) for name in self.components] + [6])
        lines = [f"{'':<{width}}  {'mean +- std':<20}  no verdict"]
        for name, moments in self.components.items():
            lines.append(
                f"{name:<{width}}  {moments!s:<20}  {_without_verdict(self.verdicts[name])}"
            )
        lines.append(f"{'reward':<{width}}  {self.reward!s:<20}  {self.rows - self.kept}")
        return "\n".join(["scores", *("  " + line.rstrip() for line in lines)])

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return {
            "rows": self.rows,
            "kept": self.kept,
            "reward": self.reward.to_json(),
            "components": {name: moments.to_json() for name, moments in self.components.items()},
            "verdicts": {name: counts.to_json() for name, counts in self.verdicts.items()},
            "in_reward": {name: counts.to_json() for name, counts in self.in_reward.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Summary:
        """A summary that goes on where `to_json` was called."""
        return cls(
            rows=content["rows"],
            kept=content["kept"],
            reward=Moments(**content["reward"]),
            components={
                name: Moments(**moments) for name, moments in content["components"].items()
            },
            verdicts={
                name: VerdictCounts.from_json(counts)
                for name, counts in content["verdicts"].items()
            },
            in_reward={
                name: VerdictCounts.from_json(counts)
                for name, counts in content["in_reward"].items()
            },
        )


def _without_verdict(counts: VerdictCounts) -> str:
    lacking = Counter(
        {status: count for status, count in counts.statuses.items() if status != "ok"}
    )
    skipped = counts.rows - counts.asked
    if skipped:
        lacking["skipped"] = skipped
    return ", ".join(f"{count} {status}" for status, count in lacking.most_common()) or "0"

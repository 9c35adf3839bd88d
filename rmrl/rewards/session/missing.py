"""Budgets for missing verdicts: a policy must not learn from a judge that is not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np

from rmrl.errors import MissingVerdictsError
from rmrl.registry import did_you_mean
from rmrl.types import ScoreResult, Scores

CAUSES: Mapping[str, tuple[str, ...]] = {
    "infrastructure": ("timeout", "provider_error", "worker_lost", "cancelled"),
    "data": ("unparseable", "judge_truncated", "judge_refused", "overlong"),
    "user": ("user_error",),
}
"""Causes of a missing verdict: machines and servers, the texts that were read or written, the
user's own function."""
_NOT_MISSING = ("ok", "skipped")

UNASKED = "not asked"
"""Stands beside a status for responses about which the component was not asked."""
UNASKED_SHARE = 0.95
UNASKED_ROWS = 20
"""Responses without the part that a reward reads are no failure of the reward and count for no
budget, up to this share of at least this many. Above the share nearly nothing is rewarded."""


@dataclass(slots=True)
class VerdictCounts:
    """Counts one component's verdicts by status, over any number of batches."""

    rows: int = 0
    """Number of responses, `skipped` responses included."""
    statuses: Counter[str] = field(default_factory=Counter)
    """Status -> number of responses that the component had to score."""
    examples: dict[str, str] = field(default_factory=dict)
    """Status -> the first detail seen with it. "<status>, <UNASKED>" -> the first detail of an
    `unasked` response."""
    unasked: Counter[str] = field(default_factory=Counter)
    """Status -> number of responses that count for no budget (`ScoreResult.unasked`)."""

    def add(self, results: Sequence[ScoreResult], takes_part_B: np.ndarray | None = None) -> None:
        """Count more results. Where the component takes no part in the reward (bool, one per
        result), only the row is counted."""
        takes_part_B = np.ones(len(results), dtype=bool) if takes_part_B is None else takes_part_B
        for result, takes_part in zip(results, takes_part_B, strict=True):
            self.rows += 1
            if result.status == "skipped" or not takes_part:
                continue
            self.statuses[result.status] += 1
            key: str = result.status
            if result.unasked:
                self.unasked[result.status] += 1
                key = f"{result.status}, {UNASKED}"
            if result.status not in _NOT_MISSING and result.detail:
                self.examples.setdefault(key, result.detail)

    def merge(self, other: VerdictCounts) -> None:
        """Add the counts from further batches."""
        self.rows += other.rows
        self.statuses += other.statuses
        self.unasked += other.unasked
        for status, detail in other.examples.items():
            self.examples.setdefault(status, detail)

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain JSON for `from_json`."""
        return {
            "rows": self.rows,
            "statuses": dict(self.statuses),
            "examples": dict(self.examples),
            "unasked": dict(self.unasked),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> VerdictCounts:
        """Restore the counts that `to_json` saved."""
        return cls(
            rows=content["rows"],
            statuses=Counter(content["statuses"]),
            examples=dict(content["examples"]),
            unasked=Counter(content.get("unasked", {})),
        )

    @property
    def asked(self) -> int:
        return self.statuses.total()

    def without_number(self) -> Counter[str]:
        """Return the number of responses without a verdict by status, `skipped` included."""
        statuses = Counter(self.statuses)
        del statuses["ok"]
        skipped = self.rows - self.asked
        if skipped:
            statuses["skipped"] = skipped
        return statuses

    def missing(self, cause: str = "") -> int:
        """Return the number of missing verdicts that budgets bound, for any cause or for one cause
        in CAUSES."""
        return sum(
            count - self.unasked[status]
            for status, count in self.statuses.items()
            if is_missing(status, cause)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrun:
    """An exceeded budget. `cause` is "" for `reward.max_missing`, which bounds all causes
    together."""

    cause: str
    missing: int
    asked: int
    allowed: float
    unasked: str = ""
    """Why the component was not asked about nearly all responses, where that is so."""

    def __str__(self) -> str:
        said = "gave no verdict for"
        if self.unasked:
            said = "was not asked about"
        text = f"{said} {self.missing} of {self.asked} responses ({self.missing / self.asked:.1%})"
        if self.unasked:
            text += f", so nearly none is rewarded ({self.unasked})"
        return f"{text}; {self.key}={self.allowed:g} allows {self.allowed:.0%}"

    @property
    def key(self) -> str:
        """The key that sets the budget."""
        return f"reward.max_missing_by_cause.{self.cause}" if self.cause else "reward.max_missing"


def is_missing(status: str, cause: str = "") -> bool:
    """Return whether the status means a missing verdict, for any cause or for one cause in
    CAUSES."""
    return status in CAUSES[cause] if cause else status not in _NOT_MISSING


def overruns(
    counts: VerdictCounts, *, allowed: float, by_cause: Mapping[str, float]
) -> Iterator[Overrun]:
    """Yield the budgets that a component's verdicts exceed.

    `allowed` bounds all causes together, `by_cause` bounds one cause (0..1 each). A gate may leave
    a component with a few rows: one missing verdict alone then exceeds no budget. Responses about
    which the component was not asked count for `allowed` where they are nearly all
    (UNASKED_SHARE).
    """
    unasked = counts.unasked.total()
    if counts.asked >= UNASKED_ROWS and unasked / counts.asked > max(UNASKED_SHARE, allowed):
        ((status, _),) = counts.unasked.most_common(1)
        why = counts.examples.get(f"{status}, {UNASKED}", status)
        yield Overrun(cause="", missing=unasked, asked=counts.asked, allowed=allowed, unasked=why)
        return
    asked = counts.asked - counts.unasked.total()
    if counts.missing() == 1 and asked < counts.rows and allowed > 0:
        return
    for cause, share in (("", allowed), *by_cause.items()):
        missing = counts.missing(cause)
        if asked and missing / asked > share:
            yield Overrun(cause=cause, missing=missing, asked=asked, allowed=share)


def check_missing(
    scores: Scores,
    *,
    allowed: float,
    by_cause: Mapping[str, float],
    takes_part_BC: np.ndarray | None = None,
) -> None:
    """Raise MissingVerdictsError where a component lacks more than its share of one batch's
    verdicts, by `overruns`.

    Rows on which the component takes no part in the reward (`takes_part_BC`, bool [B, C]) count for
    no budget. None: the component takes part in all rows.
    """
    for c, (name, column) in enumerate(zip(scores.names, scores.results, strict=True)):
        takes_part_B = np.ones(len(column), dtype=bool)
        if takes_part_BC is not None:
            takes_part_B = takes_part_BC[:, c]
        counts = VerdictCounts()
        counts.add(column, takes_part_B)
        for overrun in overruns(counts, allowed=allowed, by_cause=by_cause):
            if overrun.unasked:
                raise MissingVerdictsError(f"reward '{name}' {overrun}")
            statuses: Counter[str] = Counter()
            details: dict[str, None] = {}
            for result in compress(column, takes_part_B):
                if is_missing(result.status, overrun.cause) and not result.unasked:
                    statuses[result.status] += 1
                    if result.detail:
                        details[f"  {result.detail}"] = None
            causes = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
            listing = "\n".join(details)[:1500]
            message = (
                f"reward '{name}' gave no verdict for {overrun.missing} of {overrun.asked}"
                f" responses ({causes}); {overrun.key}={overrun.allowed:g} allows"
                f" {overrun.allowed:.0%}. A policy must not learn from a judge that is not there:"
                f" mend the reward, or raise {overrun.key}.\n{listing}"
            )
            raise MissingVerdictsError(message.rstrip())


def budget_problems(allowed: float, by_cause: Mapping[str, object]) -> list[str]:
    """Return one sentence for every budget that is no share or has an unknown cause."""
    problems: list[str] = []
    if not 0 <= allowed <= 1:
        problems.append(f"reward.max_missing={allowed} is a share: give a number between 0 and 1")
    for cause, share in by_cause.items():
        key = f"reward.max_missing_by_cause.{cause}"
        if cause not in CAUSES:
            problems.append(f"{key}: no such cause{did_you_mean(cause, list(CAUSES))}")
        elif isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            problems.append(f"{key}={share!r} is a share: give a number between 0 and 1")
    return problems

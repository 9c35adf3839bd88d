"""How many verdicts a step may lack: a policy must not learn from a judge that is not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
"""Whose fault a missing verdict is: that of machines and servers, of what was read or written, of
the user's own function."""
_NOT_MISSING = ("ok", "skipped")


@dataclass(slots=True)
class VerdictCounts:
    """How one component's verdicts ended, over any number of batches."""

    rows: int = 0
    """Responses in all, those that were `skipped` included."""
    statuses: Counter[str] = field(default_factory=Counter)
    """Of the responses that the component was asked about."""
    examples: dict[str, str] = field(default_factory=dict)
    """Status -> the first detail seen with it."""

    def add(self, results: Sequence[ScoreResult], takes_part_B: np.ndarray | None = None) -> None:
        """Count more results. Where the component takes no part in the reward (bool, one per
        result) only the row is counted."""
        takes_part_B = np.ones(len(results), dtype=bool) if takes_part_B is None else takes_part_B
        for result, takes_part in zip(results, takes_part_B, strict=True):
            self.rows += 1
            if result.status == "skipped" or not takes_part:
                continue
            self.statuses[result.status] += 1
            if result.status not in _NOT_MISSING and result.detail:
                self.examples.setdefault(result.status, result.detail)

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return {"rows": self.rows, "statuses": dict(self.statuses), "examples": dict(self.examples)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> VerdictCounts:
        """Counts that go on where `to_json` was called."""
        return cls(
            rows=content["rows"],
            statuses=Counter(content["statuses"]),
            examples=dict(content["examples"]),
        )

    @property
    def asked(self) -> int:
        return self.statuses.total()

    def missing(self, cause: str = "") -> int:
        """Verdicts that are missing, for any cause or for one of CAUSES."""
        return sum(count for status, count in self.statuses.items() if is_missing(status, cause))


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrun:
    """A budget that does not hold. `cause` is "" for `reward.max_missing`, which bounds all causes
    together."""

    cause: str
    missing: int
    asked: int
    allowed: float

    @property
    def key(self) -> str:
        """The key that sets the budget."""
        return f"reward.max_missing_by_cause.{self.cause}" if self.cause else "reward.max_missing"


def is_missing(status: str, cause: str = "") -> bool:
    """Whether the status is that of a missing verdict, for any cause or for one of CAUSES."""
    return status in CAUSES[cause] if cause else status not in _NOT_MISSING


def overruns(
    counts: VerdictCounts, *, allowed: float, by_cause: Mapping[str, float]
) -> Iterator[Overrun]:
    """The budgets that a component's verdicts break.

    `allowed` bounds all causes together, `by_cause` one of them (0..1 each). Where a gate left a
    component with a few rows, one missing verdict alone breaks none.
    """
    if counts.missing() == 1 and counts.asked < counts.rows and allowed > 0:
        return
    for cause, share in (("", allowed), *by_cause.items()):
        missing = counts.missing(cause)
        if counts.asked and missing / counts.asked > share:
            yield Overrun(cause=cause, missing=missing, asked=counts.asked, allowed=share)


def check_missing(
    scores: Scores,
    *,
    allowed: float,
    by_cause: Mapping[str, float],
    takes_part_BC: np.ndarray | None = None,
) -> None:
    """Raise MissingVerdictsError where a component lacks more than its share of one batch's
    verdicts, see `overruns`.

    Rows on which a component takes no part in the reward (`takes_part_BC`, bool [B, C]; None: it
    takes part in all) count for no budget.
    """
    for c, (name, column) in enumerate(zip(scores.names, scores.results, strict=True)):
        takes_part_B = (
            np.ones(len(column), dtype=bool) if takes_part_BC is None else takes_part_BC[:, c]
        )
        counts = VerdictCounts()
        counts.add(column, takes_part_B)
        for overrun in overruns(counts, allowed=allowed, by_cause=by_cause):
            judged = [
                result
                for result, takes_part in zip(column, takes_part_B, strict=True)
                if takes_part
            ]
            raise MissingVerdictsError(_message(name, judged, overrun))


def budget_problems(allowed: float, by_cause: Mapping[str, object]) -> list[str]:
    """What is wrong with the budgets as they were typed."""
    problems = (
        []
        if 0 <= allowed <= 1
        else [f"reward.max_missing={allowed} is a share: give a number between 0 and 1"]
    )
    for cause, share in by_cause.items():
        if cause not in CAUSES:
            problems.append(
                f"reward.max_missing_by_cause.{cause}: no such"
                f" cause{did_you_mean(cause, list(CAUSES))}"
            )
        elif isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            problems.append(
                f"reward.max_missing_by_cause.{cause}={share!r} is a share: give a number between 0"
                " and 1"
            )
    return problems


def _message(name: str, column: Sequence[ScoreResult], overrun: Overrun) -> str:
    missing = [result for result in column if is_missing(result.status, overrun.cause)]
    counts = ", ".join(
        f"{count} {status}" for status, count in Counter(r.status for r in missing).most_common()
    )
    details = "\n".join(
        f"  {detail}" for detail in dict.fromkeys(r.detail for r in missing if r.detail)
    )[:1500]
    key = overrun.key
    return (
        f"reward '{name}' gave no verdict for {overrun.missing} of {overrun.asked} responses"
        f" ({counts}); {key}={overrun.allowed:g} allows {overrun.allowed:.0%}. A policy must not"
        f" learn from a judge that is not there: mend the reward, or raise {key}.\n{details}"
    ).rstrip()

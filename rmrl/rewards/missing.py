"""How many verdicts a step may lack: a policy must not learn from a judge that is not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rmrl.errors import MissingVerdictsError
from rmrl.registry import did_you_mean
from rmrl.types import ScoreResult, Scores

CAUSES: Mapping[str, tuple[str, ...]] = {
    "infrastructure": ("timeout", "provider_error", "worker_lost", "cancelled"),
    "data": ("unparseable", "judge_truncated", "judge_refused", "overlong"),
    "user": ("user_error",),
}
"""Whose fault a missing verdict is: that of machines and servers, of what was read or written, of the user's own function."""
_NOT_MISSING = ("ok", "skipped")


def check_missing(scores: Scores, *, allowed: float, by_cause: Mapping[str, float]) -> None:
    """Raise MissingVerdictsError where a component lacks more than its share of the verdicts it was asked for.

    `allowed` bounds all causes together, `by_cause` one of them (0..1 each). Where a gate left a component with a few rows, one
    missing verdict alone does not stop the run.
    """
    for name, column in zip(scores.names, scores.results, strict=True):
        asked = [r for r in column if r.status != "skipped"]
        missing = [r for r in asked if r.status not in _NOT_MISSING]
        if len(missing) == 1 and len(asked) < len(column) and allowed > 0:
            continue
        for cause, share in (("", allowed), *by_cause.items()):
            counted = [r for r in missing if not cause or r.status in CAUSES[cause]]
            if asked and len(counted) / len(asked) > share:
                raise MissingVerdictsError(_message(name, counted, total=len(asked), allowed=share, cause=cause))


def budget_problems(allowed: float, by_cause: Mapping[str, object]) -> list[str]:
    """What is wrong with the budgets as they were typed."""
    problems = [] if 0 <= allowed <= 1 else [f"reward.max_missing={allowed} is a share: give a number between 0 and 1"]
    for cause, share in by_cause.items():
        if cause not in CAUSES:
            problems.append(f"reward.max_missing_by_cause.{cause}: no such cause{did_you_mean(cause, list(CAUSES))}")
        elif isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            problems.append(f"reward.max_missing_by_cause.{cause}={share!r} is a share: give a number between 0 and 1")
    return problems


def _message(name: str, missing: Sequence[ScoreResult], *, total: int, allowed: float, cause: str) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in Counter(r.status for r in missing).most_common())
    details = "\n".join(f"  {detail}" for detail in dict.fromkeys(r.detail for r in missing if r.detail))[:1500]
    key = f"reward.max_missing_by_cause.{cause}" if cause else "reward.max_missing"
    return (
        f"reward '{name}' gave no verdict for {len(missing)} of {total} responses ({counts}); {key}={allowed:g} allows {allowed:.0%}. "
        f"A policy must not learn from a judge that is not there: mend the reward, or raise {key}.\n{details}"
    ).rstrip()

"""Verdicts that are missing in a whole file: how many of each component and why, what to do, and
whether the budgets hold."""

from __future__ import annotations

from collections.abc import Mapping

from rmrl.config.schema import RewardConfig
from rmrl.rewards.scoring.missing import CAUSES, VerdictCounts, is_missing, overruns

_MOST_CHARACTERS = 160

REMEDIES: Mapping[str, str] = {
    "timeout": "raise its timeout_s, or find out what it waits for",
    "provider_error": (
        "look at the server or engine; the cache (reward.cache.path) spares what was answered"
    ),
    "worker_lost": (
        "score this response alone to see what kills the process (memory, a crash in a library)"
    ),
    "cancelled": "score again",
    "unparseable": (
        "read what it wrote (columns=[raw]); constrain the output (sampling.choice, json_schema) or"
        " mend rm_postprocess"
    ),
    "judge_truncated": "raise sampling.max_tokens",
    "judge_refused": "read what it wrote (columns=[raw]) and reword the rubric",
    "overlong": "raise engine.max_model_len, or shorten the input in rm_preprocess",
    "user_error": "mend the function, or the row's reference answer",
}
"""Status -> what to do."""


def missing_table(verdicts: Mapping[str, VerdictCounts]) -> str:
    """One line for each component and status, the most frequent first, with one detail as it was
    seen; "" where nothing is missing."""
    rows: list[tuple[str, ...]] = []
    examples: list[str] = []
    seen: set[str] = set()
    for name, counts in verdicts.items():
        for status, count in counts.statuses.most_common():
            if is_missing(status):
                rows.append(
                    (
                        name,
                        status,
                        _cause(status),
                        f"{count} of {counts.asked}",
                        f"{count / counts.asked:.1%}",
                    )
                )
                examples.append(_one_line(counts.examples.get(status, "")))
                seen.add(status)
    if not rows:
        return ""
    rows.insert(0, ("reward", "status", "cause", "missing", "share"))
    examples.insert(0, "for example")
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["missing verdicts"]
    for row, example in zip(rows, examples, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  " + "  ".join([*cells, example]).rstrip())
    lines.append("what to do")
    lines += [f"  {status}: {remedy}" for status, remedy in REMEDIES.items() if status in seen]
    return "\n".join(lines)


def broken_budgets(verdicts: Mapping[str, VerdictCounts], settings: RewardConfig) -> list[str]:
    """One sentence for each budget of `reward.max_missing` and `max_missing_by_cause` that does not
    hold over all rows."""
    lines = []
    for name, counts in verdicts.items():
        for overrun in overruns(
            counts, allowed=settings.max_missing, by_cause=settings.max_missing_by_cause
        ):
            share = overrun.missing / overrun.asked
            lines.append(
                f"reward '{name}' gave no verdict for {overrun.missing} of {overrun.asked}"
                f" responses ({share:.1%}); {overrun.key}={overrun.allowed:g} allows"
                f" {overrun.allowed:.0%}"
            )
    return lines


def _cause(status: str) -> str:
    return next((cause for cause, statuses in CAUSES.items() if status in statuses), "")


def _one_line(detail: str) -> str:
    words = " ".join(detail.split())
    return words if len(words) <= _MOST_CHARACTERS else f"{words[:_MOST_CHARACTERS]} ..."

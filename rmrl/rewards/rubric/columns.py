"""Columns of a response's criteria: numbers that the samples file keeps and the log averages."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from typing import Any

from rmrl.rewards.rubric.criteria import Verdict

MOST_PLACES = 16
"""Places of rows' own criteria that have a column, so that the number of metrics is bounded."""
_LONGEST = 48


def column_name(text: str) -> str:
    """A name or tag as the name of a column: words joined by underscores."""
    return re.sub(r"[^\w.-]+", "_", text.strip().lower()).strip("_")[:_LONGEST]


def criterion_columns(
    verdicts: Sequence[Verdict], *, configured: int, chosen: Sequence[str]
) -> dict[str, float]:
    """The value of each criterion by the name of its column, and the mean of each chosen tag.

    The first `configured` criteria, which every row has, and those whose name is `chosen` have a
    column of their name; others, as those without a name, `criterion_<number>`, up to MOST_PLACES:
    names differ from row to row, and each would be a metric of its own.
    """
    columns: dict[str, float] = {}
    by_tag: dict[str, list[float]] = {}
    for verdict in verdicts:
        criterion = verdict.criterion
        name = column_name(criterion.name)
        if name and (verdict.number <= configured or criterion.name in chosen):
            columns[name] = verdict.value
        elif verdict.number <= max(MOST_PLACES, configured):
            columns[f"criterion_{verdict.number}"] = verdict.value
        for tag in criterion.tags:
            if tag in chosen:
                by_tag.setdefault(column_name(tag), []).append(verdict.value)
    for name, values in by_tag.items():
        columns[name] = statistics.fmean(values)
    return columns


def criterion_record(verdict: Verdict) -> dict[str, Any]:
    """One criterion as the samples file keeps it."""
    criterion = verdict.criterion
    record: dict[str, Any] = {"number": verdict.number}
    if criterion.name:
        record["name"] = criterion.name
    record |= {"text": criterion.text, "weight": criterion.weight}
    if criterion.must_have:
        record["must_have"] = True
    return record | {"value": verdict.value, "shares": dict(verdict.shares)}

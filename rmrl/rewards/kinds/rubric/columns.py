"""Columns of a response's criteria: numbers that the samples file keeps and the log averages."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from rmrl.rewards.kinds.rubric.criteria import Verdict

MOST_PLACES = 16
"""Places of rows' own criteria that have a column, so that the number of metrics is bounded."""
_LONGEST = 48
_TAKEN = ("passed", "criteria", "label_mass", "truncated_tokens")
"""Columns that a result has besides those of its criteria."""
_PLACE = re.compile(r"criterion_\d+")


def column_name(text: str) -> str:
    """A name or tag as a column's name: words joined by underscores."""
    return re.sub(r"[^\w.-]+", "_", text.strip().lower()).strip("_")[:_LONGEST]


def column_problem(name: str) -> str:
    """Why a name or tag gives no column of its own, as the end of a sentence; "" where it does."""
    column = column_name(name)
    if not column:
        return "no letter or digit is left of it as the name of a column"
    if column in _TAKEN or _PLACE.fullmatch(column):
        return f"the column {column} is there already, for something else"
    return ""


def column_problems(names: Iterable[str], where: str) -> list[str]:
    """One sentence for each name that gives no column of its own among these."""
    problems: list[str] = []
    seen: dict[str, str] = {}
    for name in names:
        column = column_name(name)
        problem = column_problem(name)
        if problem:
            problems.append(f"{where}: the name {name!r}: {problem}; rename it")
        elif column in seen:
            problems.append(
                f"{where}: {seen[column]!r} and {name!r} make one column, {column}; rename one"
            )
        seen.setdefault(column, name)
    return problems


def criterion_columns(
    verdicts: Sequence[Verdict], *, configured: int, chosen: Sequence[str]
) -> dict[str, float]:
    """Each criterion's value by its column's name, and the mean of each chosen tag.

    The first `configured` criteria, which every row has, and those whose name is `chosen` have a
    column of their name; others, as those without a name, `criterion_<number>`, up to MOST_PLACES:
    names differ from row to row, and each would be a metric of its own. No column replaces another
    one: where two names of a row make one column the second has that of its place, and a tag that
    makes a column of a name has `tag_<tag>`.
    """
    columns: dict[str, float] = {}
    by_tag: dict[str, list[float]] = {}
    for verdict in verdicts:
        criterion = verdict.criterion
        name = column_name(criterion.name)
        named = verdict.number <= configured or criterion.name in chosen
        if named and name not in columns and not column_problem(name):
            columns[name] = verdict.value
        elif verdict.number <= max(MOST_PLACES, configured):
            columns[f"criterion_{verdict.number}"] = verdict.value
        for tag in criterion.tags:
            if tag in chosen:
                by_tag.setdefault(tag, []).append(verdict.value)
    for tag, values in by_tag.items():
        name = column_name(tag)
        while name in columns or column_problem(name):
            name = f"tag_{name}"
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
    shares = dict(verdict.shares)
    return record | {"value": verdict.value, "shares": shares, "label_mass": verdict.mass}

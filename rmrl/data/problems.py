"""Messages on malformed rows: the column, the value, the requirement, the remedy."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.errors import DataError

MOST_PROBLEMS = 5
"""Number of problems per file that are collected and reported together."""

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80
_short.maxlist = _short.maxtuple = _short.maxdict = 3
_short.maxlevel = 3


def shown(value: object) -> str:
    """Return a short repr with the type's name, such as "17 (int)", with at most a few hundred
    characters."""
    return f"{_short.repr(value)} ({type(value).__name__})"


class FieldError(Exception):
    """A malformed column in one row. The schema catches it and adds file and row."""

    def __init__(self, column: str, *, saw: str, need: str, todo: str) -> None:
        super().__init__(f"column '{column}': saw {saw}; need {need}; {todo}")
        self.column = column


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that cannot be scored, as it stands in a quarantine file."""

    file: str
    row: int
    """Position in the file, 0 is the first."""
    line: int | None
    """Line of a jsonl or csv file on which the row begins, 1 is the first."""
    reason: str
    text: str = ""
    """The line itself, of a row that could not be parsed."""
    fields: Mapping[str, Any] | None = None
    """The columns of a row that could be parsed."""


def file_error(file: str, problems: Sequence[str]) -> DataError:
    """Return one error for all `problems` in `file`."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    more = " (the first ones)" if len(problems) >= MOST_PROBLEMS else ""
    lines = "\n".join(map("- {}".format, problems))
    return DataError(f"{count} in {file}{more}:\n{lines}")

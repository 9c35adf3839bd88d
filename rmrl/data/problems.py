"""What a user reads when a row is wrong: the column, what was seen, what is needed, what to do."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence

from rmrl.errors import DataError

MOST_PROBLEMS = 5
"""A file's problems are gathered up to this many, then reported together."""

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80
_short.maxlist = _short.maxtuple = _short.maxdict = 3
_short.maxlevel = 3


def shown(value: object) -> str:
    """A short repr with the type's name, such as "17 (int)"; never longer than a few hundred
    characters."""
    return f"{_short.repr(value)} ({type(value).__name__})"


class FieldError(Exception):
    """One column of one row is wrong. Caught by the schema, which knows file and row."""

    def __init__(self, column: str, *, saw: str, need: str, todo: str) -> None:
        super().__init__(f"column '{column}': saw {saw}; need {need}; {todo}")
        self.column = column


def file_error(file: str, problems: Sequence[str]) -> DataError:
    """All `problems` of `file` as one error."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    more = " (the first ones)" if len(problems) >= MOST_PROBLEMS else ""
    return DataError(f"{count} in {file}{more}:\n" + "\n".join(f"- {p}" for p in problems))

"""A layout: its columns, and how a row becomes an example."""

from __future__ import annotations

from typing import ClassVar, Protocol

from rmrl.evaluation.formats.fields import Fields
from rmrl.reward_training.example import Example


class Form(Protocol):
    """One layout. Its class subclasses this one."""

    columns: ClassVar[tuple[tuple[str, ...], ...]]
    """Sets of columns. A row that has one is told as this form."""

    def example(self, row: Fields) -> Example:
        """Return the row as an example. Raises DataError naming file, row and column."""
        ...


def source_of(row: Fields) -> str:
    """Return where a row comes from, "" where it does not say."""
    return str(row.get("data_source", row.get("source", "")))

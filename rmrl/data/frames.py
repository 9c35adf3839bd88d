"""Rows in memory: a list of mappings, or another library's data frame or table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rmrl.errors import DataError


def mappings_of(rows: Any) -> Iterator[dict[str, Any]]:
    """Yield each row as a mapping of its own. Raises DataError where `rows` holds none."""
    if hasattr(rows, "iterrows"):
        rows = rows.to_dict("records")  # pandas
    for method in ("to_pylist", "to_dicts"):  # pyarrow, polars
        if hasattr(rows, method):
            rows = getattr(rows, method)()
    if isinstance(rows, Mapping | str) or not isinstance(rows, Iterable):
        raise DataError(f"saw {rows!r:.80}; need a list of rows or a data frame")
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise DataError(f"row {number}: saw {row!r:.80}; need a mapping with columns")
        yield dict(row)

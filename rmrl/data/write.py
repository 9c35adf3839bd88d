"""Rows written to one parquet or jsonl file, checked by the schema that reads it."""

# pyright: basic
# pyarrow ships no types.

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmrl.data.column_names import DEFAULT_NAMES
from rmrl.data.rows import Row
from rmrl.data.schema import check_rows, plain
from rmrl.data.surrogates import escaped, without_surrogates
from rmrl.errors import DataError, first_line
from rmrl.files import JSONL_SUFFIXES


def write_rows(path: str | Path, rows: Iterable[Mapping[str, Any]], *, overwrite: bool) -> int:
    """Write `rows` in `rmrl.data.schema`'s schema and return how many there are. The file appears
    complete or not at all.

    In parquet all rows share their columns and struct keys; those that a row lacks are null. Raises
    DataError where the file exists (and not `overwrite`), there are no rows, a row is malformed, or
    a column mixes types.
    """
    path = Path(path)
    refuse_existing(path, overwrite=overwrite)
    fields: list[dict[str, Any]] = list(map(plain, rows))
    if not fields:
        raise DataError(
            f"{path}: saw no rows to write; need at least one; check the source and its filters"
        )
    raw = (Row(file=str(path), label=path.name, number=i, fields=f) for i, f in enumerate(fields))
    for _ in check_rows(raw, DEFAULT_NAMES):
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        _write(partial, path, fields)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return len(fields)


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise DataError where `path` exists already and `overwrite` is off, or its suffix is unknown.
    Call it before a long job."""
    if path.suffix not in (".parquet", *JSONL_SUFFIXES):
        raise DataError(f"{path} ends in '{path.suffix}'; need .parquet or .jsonl")
    if path.exists() and not overwrite:
        raise DataError(
            f"{path} exists already and was left alone; need a new name, or --overwrite to"
            " replace it"
        )


def _write(partial: Path, path: Path, fields: list[dict[str, Any]]) -> None:
    if path.suffix != ".parquet":
        with partial.open("w", encoding="utf-8") as file:
            for row in fields:
                file.write(escaped(json.dumps(row, ensure_ascii=False)) + "\n")
        return
    fields, _ = without_surrogates(fields)
    columns: dict[str, pa.Array] = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(fields)):
        values = [row.get(name) for row in fields]
        try:
            # Parquet has no empty struct; null means the same to the reader.
            columns[name] = pa.array([None if value == {} else value for value in values])
        except (pa.ArrowException, OverflowError) as error:
            raise DataError(
                f"{path}, column '{name}': the rows hold values of different types"
                f" ({first_line(error)}); need one type per column in parquet; write them alike,"
                " or write a .jsonl file"
            ) from error
    pq.write_table(pa.table(columns), partial)

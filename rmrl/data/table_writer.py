"""Rows written as they come, parquet or jsonl; under a temporary name until all are there."""

# pyright: basic
# pyarrow ships no types.

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmrl.data.write import refuse_existing
from rmrl.errors import ConfigError, DataError

SUFFIXES = (".parquet", ".jsonl")


class TableWriter:
    """`write` batches of rows, then `finish`; what was not finished stays in `<path>.partial`.

    Parquet takes its columns and types from the first batch; a column that is empty there must not hold anything later, and
    `types` says what ours hold. Raises ConfigError for a path it cannot write, DataError where later rows do not fit.
    """

    def __init__(self, path: Path, *, overwrite: bool, types: Mapping[str, pa.DataType] | None = None) -> None:
        if path.suffix not in SUFFIXES:
            raise ConfigError(f"out={path}: need a file that ends in {' or '.join(SUFFIXES)}")
        refuse_existing(path, overwrite=overwrite)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._types = path, dict(types or {})
        self._partial = path.with_name(path.name + ".partial")
        self._file: Any = None
        self._schema: pa.Schema | None = None

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows."""
        if not rows:
            return
        if self.path.suffix == ".jsonl":
            self._file = self._file or self._partial.open("w", encoding="utf-8")
            self._file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
            return
        table = self._table(rows)
        if self._file is None:
            self._schema = table.schema
            self._file = pq.ParquetWriter(self._partial, table.schema)
        self._file.write_table(table)

    def finish(self) -> Path:
        """Close and give the file its name."""
        if self._file is None:
            raise DataError(f"{self.path}: there was no row to write")
        self._file.close()
        self._partial.replace(self.path)
        return self.path

    def abandon(self) -> Path | None:
        """Close without a name; the path of what was written so far, if anything was."""
        if self._file is None:
            return None
        self._file.close()
        return self._partial

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        names = self._schema.names if self._schema is not None else list(dict.fromkeys(name for row in rows for name in row))
        unknown = {name for row in rows for name in row} - set(names)
        if unknown:
            raise self._misfit(", ".join(sorted(unknown)), "not there in the first rows")
        columns = {}
        for name in names:
            known = self._schema.field(name).type if self._schema is not None else self._types.get(name)
            try:
                columns[name] = pa.array([_null_if_empty(row.get(name)) for row in rows], type=known)
            except (pa.ArrowException, OverflowError, TypeError) as error:
                raise self._misfit(name, (str(error).splitlines() or [""])[0]) from error
        return pa.table(columns)

    def _misfit(self, column: str, words: str) -> DataError:
        return DataError(
            f"{self.path}, column '{column}': {words}; parquet needs the same type in all rows: write a .jsonl file (out=....jsonl)"
        )


def _null_if_empty(value: Any) -> Any:
    """Parquet has no empty struct; null means the same to the reader."""
    return None if value == {} else value


def column_types(paths: Sequence[Path]) -> dict[str, pa.DataType]:
    """Types of the columns of parquet files, so that a column that is empty at first keeps its type; {} for other files."""
    types: dict[str, pa.DataType] = {}
    for path in paths:
        if path.suffix == ".parquet":
            types |= {field.name: field.type for field in pq.read_schema(path)}
    return types


def score_types(names: Sequence[str], *, several: bool) -> dict[str, pa.DataType]:
    """Types of the columns that offline scoring adds."""

    def one(type_: pa.DataType) -> pa.DataType:
        return pa.list_(type_) if several else type_

    columns = {"reward": one(pa.float64())}
    for name in names:
        columns |= {f"score_{name}": one(pa.float64()), f"status_{name}": one(pa.string()), f"detail_{name}": one(pa.string())}
    return columns

"""Rows and further columns of them -> one parquet or jsonl file, as they come; under a temporary name until all are there."""

# pyright: basic
# pyarrow ships no types.

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from rmrl.data.source_table import SourceTables
from rmrl.errors import DataError

SUFFIXES = (".parquet", ".jsonl")
_ROW_GROUP_BYTES = 64 * 2**20
"""Rows are gathered up to this size: many small row groups make a parquet file large and slow to read."""

Columns = Mapping[str, Sequence[Any]]


class JsonlWriter:
    """A row as it was, plus its added columns; each batch is on disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("w", encoding="utf-8")

    def write(self, rows: Sequence[Mapping[str, Any]], added: Columns) -> None:
        """What JSON has no word for (timestamps, decimals, bytes) is written as text."""
        for i, row in enumerate(rows):
            whole = {**row, **{name: values[i] for name, values in added.items()}}
            self._file.write(json.dumps(whole, ensure_ascii=False, default=str) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


class ParquetWriter:
    """The rows as `sources` has them, whatever their types, plus the added columns; `types` are those of the added ones."""

    def __init__(self, path: Path, *, sources: SourceTables, types: Mapping[str, pa.DataType]) -> None:
        self._sources, self._types = sources, dict(types)
        self._kept = [name for name in sources.schema.names if name not in types]
        schema = pa.schema([sources.schema.field(name) for name in self._kept], metadata=sources.schema.metadata)
        for name, type_ in types.items():
            schema = schema.append(pa.field(name, type_))
        self._schema, self._waiting, self._bytes = schema, [], 0
        self._file = pq.ParquetWriter(path, schema)

    def write(self, rows: Sequence[Mapping[str, Any]], added: Columns) -> None:
        """`rows` only says how many of the sources' rows these are."""
        table = self._sources.take(len(rows)).select(self._kept)
        new = [pa.array(added[name], type=type_) for name, type_ in self._types.items()]
        self._waiting.append(pa.table([*table.columns, *new], schema=self._schema))
        self._bytes += self._waiting[-1].nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what waits, and the file's end."""
        self._flush()
        self._file.close()
        self._sources.close()

    def _flush(self) -> None:
        if self._waiting:
            self._file.write_table(pa.concat_tables(self._waiting).combine_chunks())
        self._waiting, self._bytes = [], 0


class TableWriter:
    """`write` batches of rows, then `finish`; what was not finished stays readable in `<path>.partial`.

    `types`: the added columns, in order; a column of the rows that has the name of an added one is replaced. `sources`: the same rows as
    Arrow tables, for parquet. Raises DataError where the file cannot be written.
    """

    def __init__(self, path: Path, *, types: Mapping[str, pa.DataType], sources: SourceTables | None = None) -> None:
        assert path.suffix in SUFFIXES
        assert sources is not None or path.suffix == ".jsonl"
        self.path, self.partial, self.rows = path, path.with_name(path.name + ".partial"), 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = JsonlWriter(self.partial) if sources is None else ParquetWriter(self.partial, sources=sources, types=types)
        except OSError as error:
            raise self._cannot(error) from error

    def write(self, rows: Sequence[Mapping[str, Any]], added: Columns) -> None:
        """Append rows; `added` has one value per row for every name in `types`."""
        try:
            self._file.write(rows, added)
        except OSError as error:
            raise self._cannot(error) from error
        self.rows += len(rows)

    def finish(self) -> Path:
        """Close and give the file its name."""
        try:
            self._file.close()
            self.partial.replace(self.path)
        except OSError as error:
            raise self._cannot(error) from error
        return self.path

    def abandon(self) -> Path | None:
        """Close without a name; the path of what was written so far, None if nothing was."""
        try:
            self._file.close()
        except OSError:
            return None  # the disk is full or gone, and its own error is on its way to the user
        if self.rows:
            return self.partial
        self.partial.unlink(missing_ok=True)
        return None

    def _cannot(self, error: OSError) -> DataError:
        return DataError(f"{self.path} cannot be written ({type(error).__name__}: {error}); make room, or give another out=")


def score_types(names: Sequence[str], *, several: bool) -> dict[str, pa.DataType]:
    """The columns that offline scoring adds, in order; lists where rows hold several responses."""
    columns = {"reward": pa.float64()}
    for name in names:
        columns |= {f"score_{name}": pa.float64(), f"status_{name}": pa.string()}
        columns |= {f"detail_{name}": pa.string(), f"extra_{name}": pa.string()}
    return {name: pa.list_(type_) if several else type_ for name, type_ in columns.items()}

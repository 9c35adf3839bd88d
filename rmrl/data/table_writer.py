"""Rows and further columns of them -> one parquet, jsonl or csv file, as they come; under a
temporary
name until all are there."""

# pyright: basic
# pyarrow ships no types.

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from rmrl.data import csv_cells
from rmrl.data.csv_cells import CsvWriter
from rmrl.data.source_table import SourceTables
from rmrl.errors import DataError
from rmrl.files import put_in_place

SUFFIXES = (".parquet", ".jsonl", csv_cells.SUFFIX)
_ROW_GROUP_BYTES = 64 * 2**20
"""Rows are gathered up to this size: many small row groups make a parquet file large and slow to
read."""

Columns = Mapping[str, Sequence[Any]]


class JsonlWriter:
    """A row as it was, plus its added columns."""

    def __init__(self, path: Path) -> None:
        # A lone surrogate cannot be UTF-8; backslashreplace turns it into \udXXX, which is its JSON
        # escape.
        self._file: TextIO = path.open("w", encoding="utf-8", errors="backslashreplace")

    def write(self, rows: Sequence[Mapping[str, Any]], added: Columns) -> None:
        """What JSON has no word for (timestamps, decimals, bytes) is written as text."""
        for i, row in enumerate(rows):
            whole = {**row, **{name: values[i] for name, values in added.items()}}
            self._file.write(json.dumps(whole, ensure_ascii=False, default=str) + "\n")

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


class ParquetWriter:
    """The rows as `sources` has them, whatever their types, plus the added columns; `types` are
    those of the added ones."""

    def __init__(
        self, path: Path, *, sources: SourceTables, types: Mapping[str, pa.DataType]
    ) -> None:
        self._sources, self._types = sources, dict(types)
        self._kept = [name for name in sources.schema.names if name not in types]
        schema = pa.schema(
            [sources.schema.field(name) for name in self._kept], metadata=sources.schema.metadata
        )
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
    """`write` batches of rows, then `finish`, or `abandon`; `path` appears with all rows or not at
    all.

    `partial`: the name until then, on the same disk. `types`: the added columns, in order; a column
    of the rows that has the name of an added one is replaced. `sources`: the same rows as Arrow
    tables, for parquet; `columns`: those of the rows, for csv. Raises DataError where the file
    cannot be written.
    """

    def __init__(
        self,
        path: Path,
        *,
        partial: Path,
        types: Mapping[str, pa.DataType],
        sources: SourceTables | None = None,
        columns: Sequence[str] = (),
    ) -> None:
        assert path.suffix in SUFFIXES
        assert (sources is not None) == (path.suffix == ".parquet")
        self.path = path
        self.partial = partial
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if sources is not None:
                self._file = ParquetWriter(partial, sources=sources, types=types)
            elif path.suffix == csv_cells.SUFFIX:
                kept = [name for name in columns if name not in types]
                self._file = CsvWriter(partial, columns=[*kept, *types])
            else:
                self._file = JsonlWriter(partial)
        except OSError as error:
            raise self._cannot(error) from error

    def write(self, rows: Sequence[Mapping[str, Any]], added: Columns) -> None:
        """Append rows; `added` has one value per row for every name in `types`."""
        try:
            self._file.write(rows, added)
        except OSError as error:
            raise self._cannot(error) from error

    def close(self) -> None:
        """Write the file's end; it still has its temporary name."""
        try:
            self._file.close()
        except OSError as error:
            raise self._cannot(error) from error

    def finish(self) -> Path:
        """Give the closed file its name."""
        try:
            put_in_place(self.partial, self.path)
        except OSError as error:
            raise self._cannot(error) from error
        return self.path

    def abandon(self) -> None:
        """Close and remove what was written."""
        with suppress(
            OSError
        ):  # the disk is full or gone, and its own error is on its way to the user
            self._file.close()
        with suppress(OSError):
            self.partial.unlink(missing_ok=True)

    def _cannot(self, error: OSError) -> DataError:
        return DataError(
            f"{self.path} cannot be written ({type(error).__name__}: {error}); make room and give"
            " the same command again, or give another out="
        )


def score_types(
    names: Sequence[str], *, several: bool, further: Sequence[str] = ()
) -> dict[str, pa.DataType]:
    """The columns that offline scoring adds, in order; lists where rows hold several responses.
    `further`: texts besides, such as raw."""
    columns = {"reward": pa.float64()}
    for name in names:
        columns |= {f"score_{name}": pa.float64()}
        columns |= {
            f"{column}_{name}": pa.string() for column in ("status", "detail", "extra", *further)
        }
    return {name: pa.list_(type_) if several else type_ for name, type_ in columns.items()}

"""Write rows and added columns to one parquet, jsonl or csv file, batch by batch, under a temporary
name until the file is complete."""

# pyright: basic
# pyarrow ships no types.

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from rmrl.data.csv_cells import CsvWriter
from rmrl.data.json_text import json_text
from rmrl.data.source_table import SourceTables
from rmrl.errors import DataError
from rmrl.files import CSV_SUFFIX, put_in_place

_log = logging.getLogger(__name__)

SUFFIXES = (".parquet", ".jsonl", CSV_SUFFIX)
_ROW_GROUP_BYTES = 64 * 2**20
"""Rows are collected up to this size: many small row groups make a parquet file large and slow to
read."""

Columns = Mapping[str, Sequence[Any]]


class JsonlWriter:
    """Writes one JSON object per line: the row with its added columns."""

    def __init__(self, path: Path) -> None:
        # A lone surrogate cannot be UTF-8; backslashreplace turns it into \udXXX, which is its JSON
        # escape.
        self._file: TextIO = path.open("w", encoding="utf-8", errors="backslashreplace")

    def write(self, rows: Sequence[Mapping[str, Any] | str], added: Columns) -> None:
        """Write rows; types that JSON lacks (timestamps, decimals, bytes) become text. A row may be
        its JSON text, which stays as it is."""
        for i, row in enumerate(rows):
            further = {name: values[i] for name, values in added.items()}
            if isinstance(row, str):
                self._file.write(f"{row.removesuffix('}')}, {json_text(further)[1:]}\n")
            else:
                self._file.write(json_text({**row, **further}) + "\n")

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


class ParquetWriter:
    """Writes the rows from `sources`, with unchanged types, and the added columns, which have
    `types`."""

    def __init__(
        self, path: Path, *, sources: SourceTables, types: Mapping[str, pa.DataType]
    ) -> None:
        self._sources = sources
        self._types = dict(types)
        self._source_names = [name for name in sources.schema.names if name not in types]
        fields = [sources.schema.field(name) for name in self._source_names]
        fields += map(pa.field, types, types.values())
        self._schema = pa.schema(fields, metadata=sources.schema.metadata)
        self._pending: list[pa.Table] = []
        self._bytes = 0
        self._file = pq.ParquetWriter(path, self._schema)

    def write(self, rows: Sequence[Mapping[str, Any]], added: Columns) -> None:
        """Write the sources' next rows, as many as `rows` has."""
        table = self._sources.take(len(rows)).select(self._source_names)
        new = [pa.array(added[name], type=type_) for name, type_ in self._types.items()]
        self._pending.append(pa.table([*table.columns, *new], schema=self._schema))
        self._bytes += self._pending[-1].nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the pending rows and end the file."""
        self._flush()
        self._file.close()
        self._sources.close()

    @property
    def replaced_rows(self) -> int:
        """In how many written rows U+FFFD stands for a lone surrogate."""
        return self._sources.replaced_rows

    def _flush(self) -> None:
        if self._pending:
            self._file.write_table(pa.concat_tables(self._pending).combine_chunks())
        self._pending = []
        self._bytes = 0


class TableWriter:
    """Writes a file that appears at `path` with all its rows or not at all: `write` row batches,
    then `finish` or `abandon`.

    `partial`: the temporary name, on the same disk. `types`: the added columns, in order. A column
    that has an added column's name is replaced. `sources`: the same rows as Arrow tables, for
    parquet; `columns`: the rows' columns, for csv; `escape_formulas`: see `CsvWriter`. Raises
    DataError where the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        *,
        partial: Path,
        types: Mapping[str, pa.DataType],
        sources: SourceTables | None = None,
        columns: Sequence[str] = (),
        escape_formulas: bool = False,
    ) -> None:
        assert path.suffix in SUFFIXES
        assert (sources is not None) == (path.suffix == ".parquet")
        self.path = path
        self.partial = partial
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if sources is not None:
                self._file = ParquetWriter(partial, sources=sources, types=types)
            elif path.suffix == CSV_SUFFIX:
                row_columns = [name for name in columns if name not in types]
                self._file = CsvWriter(
                    partial, columns=[*row_columns, *types], escape_formulas=escape_formulas
                )
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
        """End the file, which keeps its temporary name. Log a warning with how many rows in a
        parquet file had lone surrogates in their texts."""
        try:
            self._file.close()
        except OSError as error:
            raise self._cannot(error) from error
        if isinstance(self._file, ParquetWriter) and self._file.replaced_rows:
            _log.warning(
                f"{self.path}: lone surrogates in {self._file.replaced_rows} rows of the input"
                " (halves of a UTF-16 pair), which parquet cannot store; the file has U+FFFD"
                " instead; out=....jsonl keeps such texts as they are"
            )

    def finish(self) -> Path:
        """Rename the closed file to its final name."""
        try:
            put_in_place(self.partial, self.path)
        except OSError as error:
            raise self._cannot(error) from error
        return self.path

    def abandon(self) -> None:
        """Close and remove the partial file."""
        # The disk is full or gone; the error that caused the abandon is reported instead.
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self.partial.unlink(missing_ok=True)

    def _cannot(self, error: OSError) -> DataError:
        return DataError(
            f"{self.path} cannot be written ({type(error).__name__}: {error}); make room and run"
            " the same command again, or give another out="
        )


def score_types(
    names: Sequence[str], *, several: bool, further: Sequence[str] = ()
) -> dict[str, pa.DataType]:
    """Return the types for the columns that offline scoring adds, in order; lists where rows hold
    several responses. `further`: more text columns, such as raw."""
    number = pa.list_(pa.float64()) if several else pa.float64()
    text = pa.list_(pa.string()) if several else pa.string()
    columns = {"reward": number}
    for name in names:
        columns[f"score_{name}"] = number
        for column in ("status", "detail", "extra", *further):
            columns[f"{column}_{name}"] = text
    return columns

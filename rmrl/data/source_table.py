"""Data files' rows as Arrow tables, so that columns are written with their source's types and
nulls.

A parquet or Arrow file stores its types; a jsonl file's are inferred from its rows (`JsonTypes`).
Several files share one schema: a column that a file lacks is null there, int and float become
float. Arrow's texts are UTF-8, so that a lone surrogate in a JSON row becomes U+FFFD.
"""

# pyright: basic
# pyarrow ships no types.

from __future__ import annotations

import bisect
import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rmrl.data.rows import read_rows
from rmrl.data.surrogates import without_surrogates
from rmrl.data.table_files import holds_table, table_batches
from rmrl.errors import DataError, first_line

_BATCH_ROWS = 256
"""Small, because one row can be megabytes."""
_WRITE_JSONL = (
    "parquet needs one type per column; write them alike, or write JSON lines (out=....jsonl)"
)


class JsonTypes:
    """JSON rows' column types, inferred batch by batch."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._rows: list[Mapping[str, Any]] = []
        self._schema = pa.schema([])

    def add(self, fields: Mapping[str, Any]) -> None:
        """Add a row. Raises DataError where a column mixes types."""
        self._rows.append(fields)
        if len(self._rows) >= _BATCH_ROWS:
            self._infer()

    def schema(self) -> pa.Schema:
        """Return the schema for all rows added so far."""
        self._infer()
        return self._schema

    def _infer(self) -> None:
        names = dict.fromkeys(itertools.chain.from_iterable(self._rows))
        rows, _ = without_surrogates(self._rows)
        types = [_array(rows, name, None, self._file).type for name in names]
        schema = pa.schema(zip(names, types, strict=True))
        self._rows = []
        self._schema = unified([(self._file, self._schema), (self._file, schema)])


def unified(schemas: Sequence[tuple[Path, pa.Schema]]) -> pa.Schema:
    """Return one schema for all files' rows. Raises DataError naming the file whose columns do not
    match the files before it."""
    whole = schemas[0][1]
    for file, schema in schemas[1:]:
        try:
            whole = pa.unify_schemas([whole, schema], promote_options="permissive")
        except pa.ArrowException as error:
            raise DataError(f"{file}: {first_line(error)}; {_WRITE_JSONL}") from error
    return whole


class SourceTables:
    """Rows from `files`, read once and in order: `take` returns the next ones, `close` closes the
    file."""

    def __init__(
        self,
        files: Sequence[Path],
        schema: pa.Schema,
        *,
        masks: Sequence[np.ndarray | None] = (),
    ) -> None:
        """`masks`: per file a bool for each row, whether it is taken; None or (): all are."""
        self.schema = schema
        self._batches = self._read(files, masks or [None] * len(files))
        self._taken = 0
        self._read_rows = 0
        self._replaced: list[int] = []
        self._remainder: pa.Table = schema.empty_table()

    def take(self, count: int) -> pa.Table:
        """Return the next `count` rows. Raises DataError where a file has become shorter."""
        parts = [self._remainder]
        missing = count - self._remainder.num_rows
        while missing > 0:
            batch = next(self._batches, None)
            if batch is None:
                raise DataError(
                    f"the files of data.files ended {missing} rows early: they were probably"
                    " changed meanwhile; run again"
                )
            parts.append(batch)
            missing -= batch.num_rows
        rows = pa.concat_tables(parts)
        self._remainder = rows.slice(count)
        self._taken += count
        return rows.slice(0, count)

    @property
    def replaced_rows(self) -> int:
        """In how many rows taken so far U+FFFD stands for a lone surrogate."""
        return bisect.bisect_left(self._replaced, self._taken)

    def close(self) -> None:
        """Close the open file."""
        self._batches.close()

    def _read(
        self, files: Sequence[Path], masks: Sequence[np.ndarray | None]
    ) -> Generator[pa.Table]:
        for path, mask in zip(files, masks, strict=True):
            if mask is not None and not mask.any():
                continue
            if holds_table(path):
                for batch in _masked_batches(path, mask):
                    self._read_rows += len(batch)
                    yield _with_schema(pa.Table.from_batches([batch]), path, self.schema)
                continue
            fields = (row.fields for row in read_rows(path, wanted_N=mask))
            while batch := list(itertools.islice(fields, _BATCH_ROWS)):
                rows, positions = without_surrogates(batch)
                self._replaced += [self._read_rows + position for position in positions]
                self._read_rows += len(rows)
                columns = [_array(rows, field.name, field.type, path) for field in self.schema]
                yield pa.table(columns, schema=self.schema)


def _masked_batches(path: Path, mask: np.ndarray | None) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows where `mask` is true."""
    first = 0
    for batch in table_batches(path, _BATCH_ROWS):
        if mask is None:
            yield batch
        elif first < len(mask):
            wanted = mask[first : first + len(batch)]
            first += len(batch)
            # Rows behind the end of the mask were not read.
            yield batch.slice(0, len(wanted)).filter(pa.array(wanted))


def _with_schema(table: pa.Table, path: Path, schema: pa.Schema) -> pa.Table:
    if table.schema == schema:
        return table.replace_schema_metadata(schema.metadata)
    columns: list[Any] = []
    for field in schema:
        if field.name not in table.column_names:
            column = pa.nulls(len(table), field.type)
        else:
            column = table.column(field.name)
        if column.type != field.type:
            with _naming_column(field.name, path):
                column = column.cast(field.type)
        columns.append(column)
    return pa.table(columns, schema=schema)


def _array(
    rows: Sequence[Mapping[str, Any]], name: str, type_: pa.DataType | None, path: Path
) -> pa.Array:
    with _naming_column(name, path):
        return pa.array([_without_empty(row.get(name)) for row in rows], type=type_)


@contextmanager
def _naming_column(name: str, path: Path) -> Iterator[None]:
    """Raise conversion errors as a DataError that names file and column."""
    try:
        yield
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"{path}, column '{name}': {first_line(error)}; {_WRITE_JSONL}") from error


def _without_empty(value: Any) -> Any:
    """Replace empty mappings by None: parquet has no empty struct, and null is read alike."""
    if isinstance(value, dict):
        return {key: _without_empty(inner) for key, inner in value.items()} or None
    if isinstance(value, list):
        return list(map(_without_empty, value))
    return value

"""The rows of data files as Arrow tables, so that columns nobody touched are written as they were
read: types, nulls and all.

A parquet file says its types; those of a jsonl file are gathered from its rows (`JsonTypes`).
Several files get one schema: a column that one of them lacks is null there, int and float meet in
float.
"""

# pyright: basic
# pyarrow ships no types.

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmrl.data.rows import read_rows
from rmrl.errors import DataError

_BATCH_ROWS = 256
"""Small, because one row can be megabytes."""
_WRITE_JSONL = (
    "parquet needs one type per column; write them alike, or write JSON lines (out=....jsonl)"
)


class JsonTypes:
    """Column types of JSON rows, gathered as they pass."""

    def __init__(self, file: Path) -> None:
        self._file, self._rows, self._schema = file, [], pa.schema([])

    def add(self, fields: Mapping[str, Any]) -> None:
        """One more row. Raises DataError where a column mixes types."""
        self._rows.append(fields)
        if len(self._rows) >= _BATCH_ROWS:
            self._take_in()

    def schema(self) -> pa.Schema:
        """Of all rows so far."""
        self._take_in()
        return self._schema

    def _take_in(self) -> None:
        rows, self._rows = self._rows, []
        names = dict.fromkeys(name for row in rows for name in row)
        found = pa.schema([(name, _array(rows, name, None, self._file).type) for name in names])
        self._schema = unified([(self._file, self._schema), (self._file, found)])


def parquet_schema(file: Path) -> pa.Schema:
    """As the file says it."""
    return pq.read_schema(file)


def unified(schemas: Sequence[tuple[Path, pa.Schema]]) -> pa.Schema:
    """One schema for the rows of all files. Raises DataError naming the file whose columns do not
    go with those before it."""
    whole = schemas[0][1]
    for file, schema in schemas[1:]:
        try:
            whole = pa.unify_schemas([whole, schema], promote_options="permissive")
        except pa.ArrowException as error:
            raise DataError(f"{file}: {_first_line(error)}; {_WRITE_JSONL}") from error
    return whole


class SourceTables:
    """Walks the rows of `files` once, in order; `take` gives the next ones. Use `close` when
    done."""

    def __init__(self, files: Sequence[Path], schema: pa.Schema) -> None:
        self.schema = schema
        self._batches = _batches(files, schema)
        self._left: pa.Table = schema.empty_table()

    def take(self, count: int) -> pa.Table:
        """The next `count` rows. Raises DataError where a file has become shorter."""
        parts, missing = [self._left], count - self._left.num_rows
        while missing > 0:
            batch = next(self._batches, None)
            if batch is None:
                raise DataError(
                    f"the files of data.files ended {missing} rows early: were they written to"
                    " meanwhile? Run again"
                )
            parts.append(batch)
            missing -= batch.num_rows
        rows = pa.concat_tables(parts)
        self._left = rows.slice(count)
        return rows.slice(0, count)

    def close(self) -> None:
        """Close the file that is open."""
        self._batches.close()


def _batches(files: Sequence[Path], schema: pa.Schema) -> Generator[pa.Table]:
    for file in files:
        yield from (
            _of_parquet(file, schema) if file.suffix == ".parquet" else _of_json(file, schema)
        )


def _of_parquet(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS):
            yield _with_schema(pa.Table.from_batches([batch]), path, schema)


def _of_json(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    rows: list[Mapping[str, Any]] = []
    for row in read_rows(path):
        rows.append(row.fields)
        if len(rows) >= _BATCH_ROWS:
            yield _table(rows, path, schema)
            rows = []
    if rows:
        yield _table(rows, path, schema)


def _table(rows: Sequence[Mapping[str, Any]], path: Path, schema: pa.Schema) -> pa.Table:
    return pa.table([_array(rows, field.name, field.type, path) for field in schema], schema=schema)


def _with_schema(table: pa.Table, path: Path, schema: pa.Schema) -> pa.Table:
    if table.schema == schema:
        return table.replace_schema_metadata(schema.metadata)
    columns = [
        (
            _cast(table, field, path)
            if field.name in table.column_names
            else pa.nulls(len(table), field.type)
        )
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _cast(table: pa.Table, field: pa.Field, path: Path) -> pa.ChunkedArray:
    column = table.column(field.name)
    return (
        column
        if column.type == field.type
        else _or_data_error(lambda: column.cast(field.type), field.name, path)
    )


def _array(
    rows: Sequence[Mapping[str, Any]], name: str, known: pa.DataType | None, path: Path
) -> pa.Array:
    return _or_data_error(
        lambda: pa.array([_without_empty(row.get(name)) for row in rows], type=known), name, path
    )


def _or_data_error(make: Callable[[], Any], name: str, path: Path) -> Any:
    try:
        return make()
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"{path}, column '{name}': {_first_line(error)}; {_WRITE_JSONL}") from error


def _without_empty(value: Any) -> Any:
    """Parquet has no empty struct; null means the same to the reader."""
    if isinstance(value, dict):
        return {key: _without_empty(inner) for key, inner in value.items()} or None
    return [_without_empty(inner) for inner in value] if isinstance(value, list) else value


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

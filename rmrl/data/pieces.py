"""Rows from files in pieces that can be sent to another process and are the same rows there.

A piece holds some rows from one file as Arrow's IPC bytes: a jsonl file's lines, a csv file's cells
as JSON, the typed columns in a parquet or Arrow file.
"""

# pyright: basic
# pyarrow ships no types.

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from rmrl.data import csv_cells
from rmrl.data.json_texts import json_texts
from rmrl.data.rows import Row
from rmrl.data.table_files import holds_table, table_batches
from rmrl.data.traces.table import as_row
from rmrl.files import is_csv

_TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some rows from a file."""

    file: int
    """Number of the file in `data.files`, from 0."""
    first: int
    """Position of the first row among the rows to score. The others follow it."""
    places: Sequence[int]
    """Position of each row in its file."""
    lines: Sequence[int]
    """Line of each row; 0 where columns are stored."""
    content: bytes


def pieces(
    path: Path, *, file: int, first: int, wanted_N: np.ndarray, rows: int
) -> Iterator[Piece]:
    """Yield a file's rows where `wanted_N` is true, `rows` in a piece. The last piece, and a
    parquet or Arrow file's, may have fewer. They were checked before."""
    if holds_table(path):
        yield from _of_table(path, file=file, first=first, wanted_N=wanted_N, rows=rows)
        return
    read = _csv_texts if is_csv(path) else _json_texts
    texts = (entry for entry in read(path, len(wanted_N)) if wanted_N[entry[0]])
    while entries := list(islice(texts, rows)):
        places, lines, contents = zip(*entries, strict=True)
        table = pa.table({_TEXT: pa.array(contents, type=pa.large_string())})
        yield Piece(file=file, first=first, places=places, lines=lines, content=ipc_bytes(table))
        first += len(entries)


def rows_of(piece: Piece, path: Path, label: str) -> Iterator[Row]:
    """Yield the rows in a piece from the file `path`, as `read_rows` reads them."""
    table = table_of(piece.content)
    texts = not holds_table(path)
    columns = table.to_pylist(maps_as_pydicts="strict")
    for place, line, fields in zip(piece.places, piece.lines, columns, strict=True):
        where = f"{path} line {line}"
        yield Row(
            file=str(path),
            label=label,
            number=place,
            fields=as_row(json.loads(fields[_TEXT]), where) if texts else fields,
            line=line or None,
            is_plain=True,
            text_cells=is_csv(path),
        )


def ipc_bytes(table: pa.Table) -> bytes:
    """Return the table as bytes for `table_of`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def table_of(content: bytes) -> pa.Table:
    """Return `ipc_bytes`' table."""
    return pa.ipc.open_stream(content).read_all()


def _json_texts(path: Path, count: int) -> Iterator[tuple[int, int, str]]:
    """Yield (place, line, text) for the first `count` rows. An unreadable line's text may hold lone
    surrogates."""
    for place, (line, text) in enumerate(islice(json_texts(path), count)):
        yield place, line, text


def _csv_texts(path: Path, count: int) -> Iterator[tuple[int, int, str]]:
    for place, (line, cells) in enumerate(islice(csv_cells.read_records(path), count)):
        # A record that is not a mapping of cells is a bad row, which is never wanted.
        yield place, line, json.dumps(cells, default=str)


def _of_table(
    path: Path, *, file: int, first: int, wanted_N: np.ndarray, rows: int
) -> Iterator[Piece]:
    start = 0
    for batch in table_batches(path, rows):
        if start >= len(wanted_N):
            return
        places = start + np.flatnonzero(wanted_N[start : start + len(batch)])
        if len(places):
            chosen = batch.take(pa.array(places - start))
            yield Piece(
                file=file,
                first=first,
                places=places.tolist(),
                lines=[0] * len(places),
                content=ipc_bytes(pa.Table.from_batches([chosen])),
            )
        first += len(places)
        start += len(batch)

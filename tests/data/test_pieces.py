"""Rows in pieces for another process are the rows of the file."""

from __future__ import annotations

import dataclasses
import datetime
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmrl.data.pieces import pieces, rows_of
from rmrl.data.rows import read_rows

COUNT = 11


def write(folder: Path, suffix: str) -> Path:
    path = folder / f"rows.{suffix}"
    when = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)
    rows = [
        {"prompt": f"q {i}", "response": f'é "{i}", \n', "n": i, "x": [{"a": i / 3}], "t": when}
        for i in range(COUNT)
    ]
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif suffix == "csv":
        lines = [f'q {i},"é ""{i}"", \n"' for i in range(COUNT)]
        path.write_text("prompt,response\n" + "\n".join(lines) + "\n", encoding="utf-8")
    else:
        lines = [json.dumps(row | {"r": "\ud83d"}, default=str) for row in rows]
        path.write_text("\n\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_the_rows_of_pieces_are_those_of_the_file(tmp_path: Path, suffix: str, size: int) -> None:
    path = write(tmp_path, suffix)
    wanted_N = np.ones(COUNT - 1, dtype=bool)  # the last row was not read
    wanted_N[[0, 5]] = False
    rows = []
    numbers: list[int] = []
    for piece in pieces(path, file=3, first=20, wanted_N=wanted_N, rows=size):
        assert piece.file == 3
        assert 1 <= len(piece.places) <= size
        numbers += range(piece.first, piece.first + len(piece.places))
        rows += rows_of(piece, path, "label")
    expected = list(read_rows(path, label="label", wanted_N=wanted_N))
    assert len(expected) == COUNT - 3
    assert numbers == list(range(20, 20 + len(expected)))
    # sizes steer the order of groups, which no cluster scores
    assert rows == [dataclasses.replace(row, size=0) for row in expected]

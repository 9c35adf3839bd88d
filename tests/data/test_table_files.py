"""Arrow files, and folders that `save_to_disk` of the package datasets wrote, have the rows of the
parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from rmrl.data.rows import count_rows, file_list, read_rows
from rmrl.data.source_table import SourceTables
from rmrl.data.table_files import table_schema
from rmrl.errors import DataError
from tests.inputs import raises_with
from tests.offline.conftest import Bench, bench

__all__ = ["bench"]

ROWS: list[dict[str, Any]] = [
    {"prompt": f"q {i}", "response": "é" * i, "extra_info": {"i": i}} for i in range(600)
]
"""More than are read at once."""
TABLE = pa.Table.from_pylist(ROWS)


def write(path: Path, form: str) -> Path:
    if form == "parquet":
        pq.write_table(TABLE, path)
        return path
    new = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, new(file, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=500)
    return path


@pytest.mark.parametrize("form", ["stream", "file"])
def test_arrow_files_are_read_as_parquet_is(tmp_path: Path, form: str) -> None:
    path = write(tmp_path / "rows.arrow", form)
    assert [row.fields for row in read_rows(path)] == ROWS
    assert [row.number for row in read_rows(path)] == list(range(600))
    assert count_rows(path) == 600
    wanted_N = np.zeros(550, dtype=bool)
    wanted_N[[3, 512]] = True
    assert [row.number for row in read_rows(path, wanted_N=wanted_N)] == [3, 512]
    tables = SourceTables([path], table_schema(path), masks=[wanted_N])
    assert tables.take(2).to_pylist() == [ROWS[3], ROWS[512]]
    tables.close()


@pytest.mark.parametrize("form", ["stream", "file"])
def test_a_scored_arrow_file_is_the_scored_parquet_file(bench: Bench, form: str) -> None:
    bench.scored(write(bench.folder / "a.parquet", "parquet"), out="from_parquet.parquet")
    bench.scored(write(bench.folder / "b.arrow", form), out="from_arrow.parquet")
    outputs = [
        pq.read_table(bench.folder / f"from_{name}.parquet") for name in ("parquet", "arrow")
    ]
    assert outputs[0].num_rows == 600
    assert outputs[0] == outputs[1]


def test_a_folder_of_save_to_disk_is_its_files_in_their_order(tmp_path: Path) -> None:
    saved = Dataset.from_list(ROWS)
    saved.save_to_disk(tmp_path / "saved", num_shards=11)
    files = file_list(str(tmp_path / "saved"), "data.files")
    assert [path.name for path in files] == [f"data-{i:05d}-of-00011.arrow" for i in range(11)]
    assert [row.fields for path in files for row in read_rows(path)] == ROWS
    DatasetDict(train=saved, test=saved).save_to_disk(tmp_path / "both")
    with raises_with(DataError, "holds the splits test, train", "data.files=", "both/test"):
        file_list(str(tmp_path / "both"), "data.files")
    assert len(file_list(str(tmp_path / "both" / "test"), "data.files")) == 1


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"_data_files": [5]}'])
def test_a_folder_whose_list_of_files_is_broken(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with raises_with(DataError, "data.files: ", "lists no files", "save it again"):
        file_list(str(tmp_path), "data.files")


@pytest.mark.parametrize("size", [0, 100, 1000])
@pytest.mark.parametrize("form", ["stream", "file"])
def test_a_torn_arrow_file(tmp_path: Path, form: str, size: int) -> None:
    path = write(tmp_path / "rows.arrow", form)
    path.write_bytes(path.read_bytes()[:size])
    with raises_with(DataError, f"({size} bytes) cannot be read as arrow"):
        list(read_rows(path))
    with raises_with(DataError, f"({size} bytes) cannot be read as arrow"):
        count_rows(path)

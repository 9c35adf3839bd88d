"""Rows and scores -> a file: what was read comes out unchanged, whatever its types; a job that
breaks off leaves what it has."""

from __future__ import annotations

import csv
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmrl.data.rows import read_rows
from rmrl.data.source_table import JsonTypes, SourceTables
from rmrl.data.table_writer import TableWriter, score_types
from rmrl.errors import DataError
from tests.inputs import read_lines, write_lines

ADDED = {"score_a": pa.float64(), "status_a": pa.string()}


def rich_table() -> pa.Table:
    """Nested structs with nulls inside, maps, nanoseconds, categories, decimals, and a column that
    is null in the first 300 rows."""
    count = 600
    deep = pa.struct(
        [
            ("tags", pa.list_(pa.struct([("k", pa.string()), ("n", pa.int32())]))),
            ("gone", pa.null()),
        ]
    )
    columns = {
        "deep": pa.array(
            [
                None if i % 7 == 0 else {"tags": [{"k": None, "n": i}] * (i % 3), "gone": None}
                for i in range(count)
            ],
            deep,
        ),
        "map": pa.array(
            [[("x", i), ("y", None)] for i in range(count)], pa.map_(pa.string(), pa.int64())
        ),
        "when": pa.array(
            [None if i % 5 == 0 else 10**18 + i for i in range(count)], pa.timestamp("ns", tz="UTC")
        ),
        "kind": pa.array(["a", "b", None] * (count // 3)).dictionary_encode(),
        "price": pa.array([Decimal(i) / 100 for i in range(count)], pa.decimal128(12, 2)),
        "late": pa.array([None] * 300 + ["x"] * 300, pa.large_string()),
        "small": pa.array([i % 100 for i in range(count)], pa.int8()),
    }
    return pa.table(columns).replace_schema_metadata({"made_by": "someone"})


def made(path: Path, **keywords: Any) -> TableWriter:
    return TableWriter(path, partial=path.with_name("partial"), **keywords)


def write_all(writer: TableWriter, rows: list[dict[str, Any]], sizes: list[int]) -> Path:
    at = 0
    for size in sizes:
        part = rows[at : at + size]
        writer.write(
            part,
            {
                "score_a": [float(i) for i in range(at, at + len(part))],
                "status_a": ["ok"] * len(part),
            },
        )
        at += size
    writer.close()
    return writer.finish()


def test_parquet_columns_survive_exactly(tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    pq.write_table(rich_table(), source, row_group_size=130)
    read = pq.read_table(source)
    writer = made(
        tmp_path / "out.parquet",
        types=ADDED,
        sources=SourceTables([source], pq.read_schema(source)),
    )
    out = write_all(writer, [{}] * 600, [1, 255, 256, 88])
    written = pq.read_table(out)
    assert written.column_names == [*read.column_names, "score_a", "status_a"]
    assert written.select(read.column_names).equals(read, check_metadata=True)
    assert written["score_a"].to_pylist() == [float(i) for i in range(600)]
    assert not writer.partial.exists()
    assert pq.ParquetFile(out).num_row_groups == 1


def test_a_column_of_the_input_with_a_new_ones_name_is_replaced(tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"score_a": ["old", "old"], "text": ["x", "y"]}), source)
    writer = made(
        tmp_path / "out.parquet",
        types=ADDED,
        sources=SourceTables([source], pq.read_schema(source)),
    )
    assert pq.read_table(write_all(writer, [{}] * 2, [2])).to_pydict() == {
        "text": ["x", "y"],
        "score_a": [0.0, 1.0],
        "status_a": ["ok", "ok"],
    }


def test_a_name_with_a_slash_or_a_dot_is_a_column(tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": ["x"]}), source)
    types = score_types(["org/model-1.5"], several=False)
    writer = made(
        tmp_path / "out.parquet",
        types=types,
        sources=SourceTables([source], pq.read_schema(source)),
    )
    writer.write(
        [{}], {name: [1.5 if type_ == pa.float64() else "w"] for name, type_ in types.items()}
    )
    writer.close()
    assert pq.read_table(writer.finish(), columns=["score_org/model-1.5"]).to_pylist() == [
        {"score_org/model-1.5": 1.5}
    ]


def test_jsonl_rows_keep_their_own_keys(tmp_path: Path) -> None:
    writer = made(tmp_path / "out.jsonl", types=ADDED)
    rows = [
        {"text": "é", "n": 1},
        {"text": "b", "when": datetime(2024, 1, 2, tzinfo=UTC), "price": Decimal("1.50")},
    ]
    written = read_lines(write_all(writer, rows, [1, 1]))
    assert written == [
        {"text": "é", "n": 1, "score_a": 0.0, "status_a": "ok"},
        {
            "text": "b",
            "when": "2024-01-02 00:00:00+00:00",
            "price": "1.50",
            "score_a": 1.0,
            "status_a": "ok",
        },
    ]


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_keys_of_maps_become_text(tmp_path: Path, suffix: str) -> None:
    source = tmp_path / "in.parquet"
    of_dates = pa.array([[(date(2020, 1, 2), 1)]], pa.map_(pa.date32(), pa.int64()))
    of_bytes = pa.array([[(b"k", [b"v"])]], pa.map_(pa.binary(), pa.list_(pa.binary())))
    pq.write_table(pa.table({"dates": of_dates, "bytes": of_bytes}), source)
    writer = made(tmp_path / f"out.{suffix}", types=ADDED, columns=["dates", "bytes"])
    rows = [row.fields for row in read_rows(source)]
    written = write_all(writer, rows, [1]).read_text()
    if suffix == "csv":
        cells = list(csv.reader(written.splitlines()))[1]
        assert cells[:2] == ['{"2020-01-02": 1}', """{"b'k'": ["b'v'"]}"""]
    else:
        expected = {"dates": {"2020-01-02": 1}, "bytes": {"b'k'": ["b'v'"]}}
        assert json.loads(written) == expected | {"score_a": 0.0, "status_a": "ok"}


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_what_is_abandoned_leaves_neither_name(tmp_path: Path, suffix: str) -> None:
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": ["x", "y", "z"]}), source)
    sources = SourceTables([source], pq.read_schema(source)) if suffix == "parquet" else None
    writer = made(tmp_path / "deeper" / f"out.{suffix}", types=ADDED, sources=sources)
    writer.write(
        [{"text": "x"}, {"text": "y"}], {"score_a": [1.0, None], "status_a": ["ok", "timeout"]}
    )
    writer.abandon()
    assert list((tmp_path / "deeper").iterdir()) == []


def test_a_lone_surrogate_is_written_as_its_escape(tmp_path: Path) -> None:
    writer = made(tmp_path / "out.jsonl", types=ADDED)
    out = write_all(writer, [{"text": "half a \ud83d"}], [1])
    assert json.loads(out.read_text(encoding="utf-8"))["text"] == "half a \ud83d"


def test_a_lone_surrogate_becomes_a_replacement_character_in_parquet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[dict[str, Any]] = [
        {"text": "half a \ud83d", "number": 1, "deep": {"list": ["a\udc00b", None]}},
        {"text": "whole \U0001f600", "number": None, "deep": {"list": []}},
        {"text": "plain", "number": float("nan"), "deep": {"list": ["\ud800\ud800"]}},
        {"text": "never written \ud83d", "number": 4, "deep": None},
    ]
    source = tmp_path / "in.jsonl"
    write_lines(source, rows)
    schema = types_of(rows, source)
    writer = made(tmp_path / "out.parquet", types=ADDED, sources=SourceTables([source], schema))
    out = write_all(writer, rows[:3], [2, 1])
    table = pq.read_table(out)
    assert table["text"].to_pylist() == ["half a \ufffd", "whole \U0001f600", "plain"]
    lists = [deep["list"] for deep in table["deep"].to_pylist()]
    assert lists == [["a\ufffdb", None], [], ["\ufffd\ufffd"]]
    # Two of the three rows written; the row behind them is read in the same batch and not counted.
    (message,) = caplog.messages
    assert "out.parquet: lone surrogates in 2 rows of the input" in message


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match=r"out\.jsonl cannot be written .*give another out="):
        made(tmp_path / "file" / "out.jsonl", types=ADDED)


def types_of(rows: list[dict[str, Any]], file: Path = Path("rows.jsonl")) -> pa.Schema:
    gathered = JsonTypes(file)
    for row in rows:
        gathered.add(row)
    return gathered.schema()


def test_types_of_json_rows_come_from_all_of_them() -> None:
    first = [{"a": None, "info": {}, "n": 1}] * 300  # more than one batch before anything is known
    schema = types_of(
        [*first, {"a": "x", "info": {"deep": {"empty": {}, "k": [1]}}, "n": 2.5, "new": True}]
    )
    deep = pa.struct([("empty", pa.null()), ("k", pa.list_(pa.int64()))])
    assert schema == pa.schema(
        [
            ("a", pa.string()),
            ("info", pa.struct([("deep", deep)])),
            ("n", pa.float64()),
            ("new", pa.bool_()),
        ]
    )


@pytest.mark.parametrize("values", [[1, "a"], [["x"], "x"], [{"k": 1}, "x"]])
def test_a_json_column_of_mixed_types_is_refused_by_name(values: list[Any]) -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl, column 'mixed': .*out=\.\.\.\.jsonl"):
        types_of([{"mixed": value} for value in values])
    with pytest.raises(DataError, match=r"rows\.jsonl: .*mixed.*out=\.\.\.\.jsonl"):
        types_of([{"mixed": values[0]}] * 256 + [{"mixed": values[1]}] * 256)


def test_files_of_different_columns_get_one_schema(tmp_path: Path) -> None:
    one, two = tmp_path / "one.parquet", tmp_path / "two.jsonl"
    pq.write_table(pa.table({"text": ["x"], "n": pa.array([1], pa.int64())}), one)
    two.write_text('{"text": "y", "n": 0.5, "more": {}}\n{"text": "z", "more": {"k": 1}}\n')
    schema = pa.schema(
        [("text", pa.string()), ("n", pa.float64()), ("more", pa.struct([("k", pa.int64())]))]
    )
    tables = SourceTables([one, two], schema)
    assert tables.take(2).to_pylist() == [
        {"text": "x", "n": 1.0, "more": None},
        {"text": "y", "n": 0.5, "more": None},
    ]
    assert tables.take(1).to_pylist() == [{"text": "z", "n": None, "more": {"k": 1}}]
    with pytest.raises(DataError, match="ended 2 rows early"):
        tables.take(2)
    tables.close()

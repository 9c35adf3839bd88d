from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmrl.data.rows import EXAMPLE_SCRIPTS, count_rows, file_labels, file_list, read_rows
from rmrl.errors import ConfigError, DataError
from tests.inputs import raises_with

ROOT = Path(__file__).resolve().parent.parent.parent


def test_jsonl_rows_carry_number_and_line(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1}\n\n  \n{"x": "é 日本 \\u2028"}\n', encoding="utf-8")
    rows = list(read_rows(path))
    assert [(r.number, r.line, r.fields) for r in rows] == [
        (0, 1, {"x": 1}),
        (1, 4, {"x": "é 日本 \u2028"}),
    ]
    assert rows[1].where == "row 1 (line 4)"
    assert (rows[0].file, rows[0].label) == (str(path), "a.jsonl")


def test_a_byte_order_mark_and_raw_line_separators_do_no_harm(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"x": "a\xe2\x80\xa8b"}\n')
    assert [r.fields for r in read_rows(path)] == [{"x": "a\u2028b"}]


def test_parquet_rows_are_plain_python_over_row_groups(tmp_path: Path):
    path = tmp_path / "a.parquet"
    prompts = [[{"role": "user", "content": f"q{i}"}] for i in range(700)]
    pq.write_table(pa.table({"prompt": prompts, "n": list(range(700))}), path, row_group_size=300)
    rows = list(read_rows(path, label="A"))
    assert len(rows) == 700
    assert rows[699].number == 699
    assert rows[699].where == "row 699"
    assert rows[699].label == "A"
    assert rows[699].fields == {"prompt": [{"role": "user", "content": "q699"}], "n": 699}


def test_reading_is_lazy(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1}\nnot json\n')
    assert next(read_rows(path)).fields == {"x": 1}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_the_entries_of_one_list(tmp_path: Path, name: str, indent: int | None):
    # Long ones, so that several lie on the borders between what is read at a time.
    entries = [{"x": "é\n" * (number * 4000), "number": number} for number in range(60)]
    text = "\ufeff \n" + json.dumps(entries, indent=indent, ensure_ascii=False)
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    rows = list(read_rows(tmp_path / name))
    assert [row.fields for row in rows] == entries
    assert count_rows(tmp_path / name) == 60
    # The list begins on line 2, its first entry behind the bracket or on the next line.
    assert (rows[0].line, rows[1].line) == ((3, 7) if indent else (2, 2))
    wanted = np.array([False, True, False])
    assert [row.number for row in read_rows(tmp_path / name, wanted_N=wanted)] == [1]


def test_a_packed_file_has_the_rows_of_the_plain_one(tmp_path: Path):
    content = b'{"x": 1}\n\n{"x": 2}\n'
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(content))
    rows = list(read_rows(tmp_path / "a.jsonl.gz"))
    assert [(row.number, row.line, row.fields) for row in rows] == [
        (0, 1, {"x": 1}),
        (1, 3, {"x": 2}),
    ]
    assert count_rows(tmp_path / "a.jsonl.gz") == 2


def test_a_row_of_megabytes(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": "' + "y" * 5_000_000 + '"}')
    assert [len(r.fields["x"]) for r in read_rows(path)] == [5_000_000]


def test_missing_file(tmp_path: Path):
    with raises_with(DataError, "gone.parquet", str(tmp_path), "parquet, jsonl or csv"):
        next(read_rows(tmp_path / "gone.parquet"))


def test_a_parquet_file_without_rows(tmp_path: Path):
    path = tmp_path / "zero.parquet"
    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), path)
    with raises_with(DataError, "zero.parquet", "no rows"):
        list(read_rows(path))


PACKED = gzip.compress(b'{"x": 1}\n' * 99, mtime=0)
ZEROS = b"PAR1" + b"\0" * 64 + b"PAR1"


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("empty.jsonl", b"", ["empty.jsonl", "no rows"]),
        ("blank.jsonl", b"\n \n", ["blank.jsonl", "no rows"]),
        ("torn.parquet", b"", ["torn.parquet (0 bytes)", "parquet"]),
        ("torn.parquet", b"PAR1 torn file", ["torn.parquet (14 bytes)", "parquet"]),
        ("torn.parquet", ZEROS, ["torn.parquet (72 bytes)", "parquet"]),
        ("latin.jsonl", b'{"x": "\xe9"}\n', ["latin.jsonl", "UTF-8", "UnicodeDecodeError"]),
        ("a.jsonl", b'{"x": 1}\n{"x": oops}\n', ["a.jsonl line 2", '{"x": oops}', "not JSON"]),
        ("a.jsonl", b"[\n{}\n]", ["a.jsonl line 1", "one object per line"]),
        ("a.json", b"[\n{},\n{\n", ["a.json line 3", "a list that ends in ]"]),
        ("a.json", b'[{"x": 1},\n\n{"x": oops}]', ["a.json line 3", '{"x": oops}', "no entry"]),
        ("a.json", b"[]", ["a.json", "no rows"]),
        ("a.jsonl.gz", b'{"x": 1}', ["a.jsonl.gz (8 bytes)", "BadGzipFile"]),
        (
            "a.jsonl.gz",
            PACKED[:30],
            ["a.jsonl.gz (30 bytes)", "EOFError"],
        ),
        ("a.json", b"[1, 2]", ["a.json line 1", "without an outer list"]),
        ("a.json", b'[\n{"x": 1}]\n \n[{"x": 2}]', ["a.json line 2", "behind the list"]),
        ("a.json.gz", gzip.compress(b'[{"x": 1}]' + b"\n" * 10**6 + b"{}"), ["behind the list"]),
        ("a.json", b"5\n", ["a.json line 1", "5 (int)"]),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, parts: list[str]):
    (tmp_path / name).write_bytes(content)
    with raises_with(DataError, *parts):
        list(read_rows(tmp_path / name))


def test_file_list_takes_one_path_or_many(tmp_path: Path):
    a, b = tmp_path / "a.jsonl", tmp_path / "b.parquet"
    a.touch()
    b.touch()
    assert file_list(str(a), "data.train_files") == [a]
    assert file_list([str(a), b], "data.train_files") == [a, b]


def test_a_pattern_is_its_files_in_order(tmp_path: Path):
    for name in ("b.parquet", "a.parquet", "c.txt", "x[1].jsonl"):
        (tmp_path / name).touch()
    found = file_list([f"{tmp_path}/*.parquet", f"{tmp_path}/x[1].jsonl"], "data.files")
    assert [path.name for path in found] == ["a.parquet", "b.parquet", "x[1].jsonl"]
    with raises_with(DataError, "*.jsonl.gz does not exist"):
        file_list(f"{tmp_path}/*.jsonl.gz", "data.files")


@pytest.mark.parametrize("value", [None, [], "", 5, ["a.jsonl", 3], {"a": 1}])
def test_file_list_refuses_other_things(value: object):
    with raises_with(ConfigError, "data.train_files: saw ", "data.train_files=data/train.parquet"):
        file_list(value, "data.train_files")


@pytest.mark.parametrize(
    ("path", "parts"),
    [("folder", ["is a folder", "train.parquet"]), ("a.xlsx", ["'.xlsx'", ".parquet, .jsonl"])],
)
def test_file_list_refuses_what_is_no_file_of_rows(tmp_path: Path, path: str, parts: list[str]):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "train.parquet").touch()
    (tmp_path / "a.xlsx").touch()
    with raises_with(DataError, "data.val_files", *parts):
        file_list(str(tmp_path / path), "data.val_files")


def test_labels_are_short_and_unique():
    assert file_labels([Path("x/a.parquet"), Path("y/b.parquet")]) == ["a.parquet", "b.parquet"]
    assert file_labels([Path("m/x/a.parquet"), Path("m/y/a.parquet")]) == [
        "x/a.parquet",
        "y/a.parquet",
    ]
    assert file_labels([Path("a.parquet"), Path("x/a.parquet")]) == ["a.parquet", "x/a.parquet"]
    assert file_labels([Path("x/a.parquet"), Path("x/a.parquet")]) == ["a.parquet", "a.parquet#2"]


@pytest.mark.parametrize("folder", list(EXAMPLE_SCRIPTS))
def test_missing_data_of_an_example_names_the_script_that_makes_it(tmp_path: Path, folder: str):
    script = EXAMPLE_SCRIPTS[folder]
    place = tmp_path / folder
    with raises_with(DataError, f"`python {script} --out {place}` makes it"):
        file_list(str(place / "train.parquet"), "data.train_files")
    assert (ROOT / script.split()[0]).is_file()


def test_missing_data_of_ones_own_names_no_script(tmp_path: Path):
    with pytest.raises(DataError, match="check the path"):
        file_list(str(tmp_path / "mine" / "train.parquet"), "data.train_files")


def test_an_address_is_answered_with_what_can_be_read():
    with raises_with(DataError, "does not exist", "download it first, or give hf://"):
        file_list("https://host/rows.jsonl", "data.files")

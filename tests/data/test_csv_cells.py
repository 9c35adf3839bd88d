"""csv files: records are read one by one with the line they begin on, cells mean what the same
parquet row would hold, mistakes are sentences."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmrl.data.column_names import ColumnNames
from rmrl.data.csv_cells import CsvWriter, scored_values_of, values_of
from rmrl.data.rows import count_rows, read_rows
from rmrl.errors import DataError


def rows_of(folder: Path, text: str) -> list[Any]:
    path = folder / "rows.csv"
    path.write_bytes(text.encode())
    return list(read_rows(path))


def test_records_with_quotes_commas_and_line_breaks(tmp_path: Path) -> None:
    text = 'prompt,response\r\n"a, ""b""","two\nlines"\r\n\r\nc,\r\n'
    first, second = rows_of(tmp_path, text)
    assert first.fields == {"prompt": 'a, "b"', "response": "two\nlines"}
    assert second.fields == {"prompt": "c", "response": ""}
    assert [(row.number, row.line) for row in (first, second)] == [(0, 2), (1, 5)]


def test_only_wanted_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('prompt\na\nb\nc\n"not closed')
    wanted_N = np.array([False, True, True])
    rows = list(read_rows(path, wanted_N=wanted_N))
    assert [(row.number, row.fields["prompt"]) for row in rows] == [(1, "b"), (2, "c")]


def test_a_cell_longer_than_the_csv_modules_limit_and_a_mark_of_the_byte_order(
    tmp_path: Path,
) -> None:
    (row,) = rows_of(tmp_path, "\ufeffprompt,response\nq," + "x" * 200_000)
    assert len(row.fields["response"]) == 200_000
    assert list(row.fields) == ["prompt", "response"]


OTHER_TABLES = {
    "a.csv": 'prompt,response\n1;2,"a\tb"\n',
    "b.csv": 'prompt;response\n"1;2";a\tb\n',
    "c.csv": 'prompt\tresponse\n1;2\t"a\tb"\n',
    "d.tsv": '"prompt"\tresponse\r\n1;2\t"a\tb"\r\n',
    "e.csv.gz": 'prompt;response\n"1;2";a\tb\n',
    "f.tsv.gz": '\ufeffprompt\tresponse\n1;2\t"a\tb"',
}


@pytest.mark.parametrize("name", OTHER_TABLES)
def test_tabs_and_semicolons_separate_cells_where_the_header_has_them(
    tmp_path: Path, name: str
) -> None:
    content = OTHER_TABLES[name].encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    (row,) = read_rows(tmp_path / name)
    assert (row.fields, row.line) == ({"prompt": "1;2", "response": "a\tb"}, 2)
    assert row.text_cells
    assert count_rows(tmp_path / name) == 1


def test_a_packed_table_that_breaks_off_is_a_sentence(tmp_path: Path) -> None:
    content = gzip.compress(b"prompt,response\n" + b"a,b\n" * 999)
    (tmp_path / "torn.csv.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"torn\.csv\.gz .*EOFError"):
        list(read_rows(tmp_path / "torn.csv.gz"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prompt;response\na,b\n", "line 2: saw 1 cells; need 2"),
        (",prompt\n0,a\n", "index=False"),
        ("prompt,prompt\na,b\n", "the column prompt more than once"),
        ("prompt,response\na,b\nc, d, e\n", "line 3: saw 3 cells; need 2"),
        ('prompt,response\na,"b\nc\n', "line 2: saw a record that is not csv"),
        ('prompt,response\na,"b" c\n', "line 2: saw a record that is not csv"),
        ("", "saw no rows"),
        ("prompt,response\n", "saw no rows"),
    ],
)
def test_what_is_wrong_with_a_file_is_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        rows_of(tmp_path, text)


def test_bytes_that_are_not_utf8_are_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"prompt\n\xff\xfe\n")
    with pytest.raises(DataError, match="cannot be read as UTF-8 csv"):
        list(read_rows(path))


def test_what_cells_mean() -> None:
    cells = {
        "question": '[{"role": "user", "content": "2 + 2?"}]',
        "rm_prompt": "[1, 2] is a list",
        "rm_prompt_judge": "",
        "reward_model": '{"style": "rule", "ground_truth": "4"}',
        "extra_info": '{"row": 3}',
        "response": '[{"role": "user"}]',
        "response_tokens": "12",
        "finish_reason": "length",
        "note": "17",
    }
    assert values_of(cells, ColumnNames({"prompt": "question"})) == {
        "question": [{"role": "user", "content": "2 + 2?"}],
        "rm_prompt": "[1, 2] is a list",
        "rm_prompt_judge": None,
        "reward_model": {"style": "rule", "ground_truth": "4"},
        "extra_info": {"row": 3},
        "response": '[{"role": "user"}]',  # a response is a text, whatever it looks like
        "response_tokens": 12,
        "finish_reason": "length",
        "note": "17",
    }
    assert values_of({"reward_model": "42"}) == {"reward_model": "42"}  # the reference itself
    assert values_of({"response": "", "ground_truth": ""}) == {"response": "", "ground_truth": None}
    assert values_of({"responses": '["a", ""]', "finish_reason": '["stop", "length"]'}) == {
        "responses": ["a", ""],
        "finish_reason": ["stop", "length"],
    }


def test_a_number_of_thousands_of_digits_stays_a_text() -> None:
    digits = "9" * 6000
    assert values_of({"response_tokens": digits}) == {"response_tokens": digits}


def test_scored_cells_are_numbers_and_lists_where_the_row_has_several() -> None:
    one = {"response": "7", "reward": "0.5", "score_j": "", "detail_j": "1", "raw_j": "[1]"}
    assert scored_values_of(one) == {
        "response": "7",
        "reward": 0.5,
        "score_j": None,
        "detail_j": "1",
        "raw_j": "[1]",
    }
    several = {"responses": '["a", "b"]', "reward": "[0.5, null]", "raw_j": '["1", ""]'}
    assert scored_values_of(several) == {
        "responses": ["a", "b"],
        "reward": [0.5, None],
        "raw_j": ["1", ""],
    }


def test_what_is_written_is_read_by_the_csv_module_and_by_arrow(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    writer = CsvWriter(path, columns=["prompt", "note", "reward", "status_a"])
    rows = [{"prompt": [{"role": "user", "content": "é"}], "note": "a\rb"}, {"prompt": "q, r"}]
    writer.write(rows, {"reward": [0.1, None], "status_a": ["ok", 'said "no"']})
    writer.close()
    text = path.read_bytes().decode()
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["prompt", "note", "reward", "status_a"],
        ['[{"role": "user", "content": "é"}]', "a\rb", "0.1", "ok"],
        ["q, r", "", "", 'said "no"'],
    ]
    options = pa_csv.ParseOptions(newlines_in_values=True)
    table = pa_csv.read_csv(path, parse_options=options)
    assert table["reward"].to_pylist() == [0.1, None]
    assert table["status_a"].to_pylist() == ["ok", 'said "no"']


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
def test_any_text_comes_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    writer = CsvWriter(path, columns=["prompt", "response"])
    writer.write([{"prompt": prompt, "response": response} for prompt, response in texts], {})
    writer.close()
    rows = [(row.fields["prompt"], row.fields["response"]) for row in read_rows(path)]
    assert rows == texts


def test_cells_that_begin_like_a_formula_are_escaped_on_request(tmp_path: Path) -> None:
    rows = [{"response": "=1+1", "level": -2}, {"response": "a=b", "level": 1}]
    for escapes, first in ((False, "=1+1"), (True, "'=1+1")):
        path = tmp_path / f"{escapes}.csv"
        writer = CsvWriter(path, columns=["response", "level", "x"], escape_formulas=escapes)
        writer.write(rows, {"x": ["@SUM(A1)", "\tb"]})
        writer.close()
        with path.open(newline="") as file:
            cells = list(csv.reader(file))
        other = ["'@SUM(A1)", "'\tb"] if escapes else ["@SUM(A1)", "\tb"]
        assert cells[1:] == [[first, "-2", other[0]], ["a=b", "1", other[1]]]

"""Rows that cannot be read: set aside with their reasons, and every row that was read is either
scored or set aside."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmrl.errors import ConfigError, DataError
from tests.inputs import read_lines
from tests.offline.conftest import Bench

QUARANTINE = "data.on_bad_row=quarantine"
LINES = (
    b'{"prompt": "q", "response": "four"}',
    b"",
    b'{"prompt": "q", "response": ',  # line 3, row 1
    b'{"prompt": "q", "response": 4}',
    b"[1, 2]",
    b'{"prompt": "q", "response": "caf\xe9"}',  # Latin-1
    b'{"response": "a"}',
    b'{"prompt": "q", "response": "ab", "extra_info": 3}',
    b'{"prompt": "q", "response": "a", "finish_reason": "tired", "rm_prompt": 7}',
    b'{"prompt": "q", "response": "ab"}',
)
REASONS = {
    1: (3, "which is not JSON"),
    2: (4, "column 'response': saw 4 (int); need a string"),
    3: (5, "saw [1, 2] (list); need one JSON object per line"),
    4: (6, "cannot be read as UTF-8"),
    5: (7, "need a column 'prompt'"),
    6: (8, "column 'extra_info': saw 3 (int); need a mapping"),
    7: (9, "column 'rm_prompt'"),
}


def mixed(bench: Bench) -> Path:
    path = bench.folder / "mixed.jsonl"
    path.write_bytes(b"\n".join(LINES) + b"\n")
    return path


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv"])
def test_bad_lines_are_set_aside_with_place_and_reason(bench: Bench, suffix: str) -> None:
    out = bench.folder / f"s.{suffix}"
    summary = bench.scored(mixed(bench), QUARANTINE, out=out.name)
    aside = read_lines(bench.folder / f"s.{suffix}.quarantine.jsonl")
    assert {row["row"]: row["line"] for row in aside} == {
        row: line for row, (line, _) in REASONS.items()
    }
    for row in aside:
        assert REASONS[row["row"]][1] in row["reason"]
        assert row["file"] == str(bench.folder / "mixed.jsonl")
    assert aside[0]["text"] == '{"prompt": "q", "response": \n'
    assert aside[1]["fields"] == {"prompt": "q", "response": 4}
    # 9 lines that are not blank: 2 are scored, 7 are not
    assert (summary.rows_read, summary.rows, summary.quarantined) == (9, 2, 7)
    assert "9 rows read = 2 scored + 7 quarantined" in summary.table()
    assert any(f"7 rows cannot be read; they are in {out}.quar" in text for text in bench.notices)


def test_the_rows_that_are_left_have_the_scores_of_a_file_without_the_others(bench: Bench) -> None:
    clean = bench.folder / "clean.jsonl"
    clean.write_bytes(LINES[0] + b"\n" + LINES[-1] + b"\n")
    for data, name in ((clean, "c"), (mixed(bench), "m")):
        bench.scored(data, QUARANTINE, out=f"{name}.jsonl")
    assert (bench.folder / "m.jsonl").read_bytes() == (bench.folder / "c.jsonl").read_bytes()
    assert not (bench.folder / "c.jsonl.quarantine.jsonl").exists()


def test_groups_whose_rows_are_apart_lose_only_their_bad_rows(bench: Bench) -> None:
    path = bench.folder / "groups.jsonl"
    rows: list[str] = []
    for i in range(12):
        rows.append(json.dumps({"prompt": f"q{i % 3}", "response": "x" * (i + 1), "i": i}))
        if i % 4 == 1:
            rows.append("{")
    path.write_text("\n".join(rows))
    by_group = "reward.transforms.length={kind: standardize, by: group}"
    bench.scored(path, QUARANTINE, by_group, out="s.parquet")
    scored = pq.read_table(bench.folder / "s.parquet").to_pylist()
    assert [row["i"] for row in scored] == list(range(12))
    for q in range(3):
        # lengths q+1, q+4, q+7, q+10: equal steps around a mean of 0
        rewards = [row["reward"] for row in scored if row["i"] % 3 == q]
        assert sum(rewards) == pytest.approx(0, abs=1e-12)
        assert rewards == sorted(rewards)


def test_cells_of_csv_that_do_not_fit_the_header(bench: Bench) -> None:
    path = bench.folder / "rows.csv"
    path.write_text('prompt,response\nq,four\nq,a,b\nq,"a"b\nq,ab\n')
    summary = bench.scored(path, QUARANTINE, out="s.csv")
    aside = read_lines(bench.folder / "s.csv.quarantine.jsonl")
    assert [(row["row"], row["line"]) for row in aside] == [(1, 3), (2, 4)]
    assert "saw 3 cells; need 2" in aside[0]["reason"]
    assert "not csv" in aside[1]["reason"]
    assert summary.rows == 2


def test_a_row_of_parquet_that_python_has_no_value_for(bench: Bench) -> None:
    far = 2**62  # microseconds: behind the year 9999
    table = pa.table(
        {
            "prompt": ["q", "q", "q"],
            "response": ["a", "ab", None],
            "when": pa.array([0, far, 0], pa.timestamp("us")),
        }
    )
    path = bench.folder / "rows.parquet"
    pq.write_table(table, path)
    bench.scored(path, QUARANTINE, out="s.parquet")
    assert pq.read_table(bench.folder / "s.parquet")["reward"].to_pylist() == [0.1]
    aside = read_lines(bench.folder / "s.parquet.quarantine.jsonl")
    assert [row["row"] for row in aside] == [1, 2]
    assert "row 1 cannot be read" in aside[0]["reason"]
    assert aside[1]["fields"]["prompt"] == "q"


NESTED = "[" * 600 + "]" * 600


@pytest.mark.parametrize(
    ("entries", "reason", "field", "shown"),
    [
        ('"response": "a", "response_tokens": 1e400', "'response_tokens': saw inf", "prompt", "q"),
        (f'"response": 4, "x": {NESTED}', "saw 4 (int)", "x", NESTED),
    ],
)
def test_unusual_json_is_set_aside(
    bench: Bench, entries: str, reason: str, field: str, shown: str
) -> None:
    """Infinity, and a row that is nested deeply."""
    path = bench.folder / "rows.jsonl"
    path.write_text(f'{{"prompt": "q", "response": "a"}}\n{{"prompt": "q", {entries}}}\n')
    summary = bench.scored(path, QUARANTINE)
    assert (summary.rows, summary.quarantined) == (1, 1)
    (aside,) = read_lines(bench.folder / "s.jsonl.quarantine.jsonl")
    assert reason in aside["reason"]
    assert str(aside["fields"][field]) == shown


def test_first_rows_count_what_is_set_aside(bench: Bench) -> None:
    summary = bench.scored(mixed(bench), QUARANTINE, "data.max_rows=4")
    assert (summary.rows_read, summary.quarantined) == (4, 3)
    assert len(read_lines(bench.folder / "s.jsonl")) == 1


def test_without_a_readable_row_the_reasons_end_the_job(bench: Bench) -> None:
    path = bench.rows(None, 3)
    with pytest.raises(DataError, match=r"no row can be scored(.|\n)*saw None(.|\n)*saw 3"):
        bench.checked(f"data.files={path}", f"out={bench.folder}/s.jsonl", QUARANTINE)


def test_a_bad_row_ends_the_job_unless_it_may_be_set_aside(bench: Bench) -> None:
    keys = (f"data.files={mixed(bench)}", f"out={bench.folder}/s.jsonl")
    with pytest.raises(DataError, match="line 3"):
        bench.checked(*keys)
    with pytest.raises(ConfigError, match=r"data\.on_bad_row='quarantin': not a choice"):
        bench.checked(*keys, "data.on_bad_row=quarantin")


def test_an_older_file_of_bad_rows_goes_when_there_are_none(bench: Bench) -> None:
    older = bench.folder / "s.jsonl.quarantine.jsonl"
    older.write_text("{}\n")
    bench.scored(bench.rows("a"), QUARANTINE)
    assert not older.exists()

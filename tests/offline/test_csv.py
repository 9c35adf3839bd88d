"""Scoring csv files: the same scores as from parquet and jsonl, columns in their order, and a job
that breaks off goes on."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmrl.errors import DataError
from rmrl.offline.conditions import condition
from rmrl.offline.job import Job
from rmrl.offline.scored_responses import responses, select
from tests.inputs import read_lines, write_lines
from tests.offline.conftest import Bench

EXACT = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    wanted = ground_truth if extra_info is None else extra_info.get("wanted", ground_truth)
    return float(solution_str == wanted)
"""
ROWS = [
    {
        "prompt": [{"role": "user", "content": 'say "a", please'}],
        "response": "a",
        "reward_model": {"style": "rule", "ground_truth": "a"},
        "extra_info": {"wanted": "a"},
        "data_source": "letters",
    },
    {
        "prompt": [{"role": "user", "content": "two\nlines"}],
        "response": "no, b",
        "reward_model": {"style": "rule", "ground_truth": "b"},
        "extra_info": {"wanted": "b"},
        "data_source": "letters",
    },
]


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for row in rows:
            writer.writerow({k: v if isinstance(v, str) else json.dumps(v) for k, v in row.items()})
    return path


def score(bench: Bench, files: Path, out: str, *more: str) -> Path:
    (bench.folder / "functions" / "exact.py").write_text(EXACT)
    path = bench.folder / out
    bench.score(bench.checked(f"data.files={files}", f"out={path}", "reward.models=[exact]", *more))
    return path


def test_csv_parquet_and_jsonl_get_the_same_scores_and_columns(bench: Bench) -> None:
    sources = {"csv": write_csv(bench.folder / "rows.csv", ROWS)}
    sources["parquet"] = bench.folder / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), sources["parquet"])
    sources["jsonl"] = bench.folder / "rows.jsonl"
    write_lines(sources["jsonl"], ROWS)
    tables = [cells(score(bench, file, f"of-{kind}.csv")) for kind, file in sources.items()]
    assert tables[0] == tables[1] == tables[2]
    first, second = tables[0]
    assert list(first)[:6] == [*ROWS[0], "reward"]
    assert (first["reward"], second["reward"]) == ("1.0", "0.0")
    assert json.loads(second["prompt"]) == ROWS[1]["prompt"]
    assert first["status_exact"] == "ok"


def test_a_scored_csv_can_be_scored_again_and_its_other_columns_are_untouched(
    bench: Bench,
) -> None:
    rows = [{**row, "note": " 007, "} for row in ROWS]
    once = score(bench, write_csv(bench.folder / "rows.csv", rows), "once.csv")
    twice = score(bench, once, "twice.csv")
    assert cells(twice) == cells(once)
    assert cells(twice)[0]["note"] == " 007, "


def test_csv_to_parquet_and_jsonl(bench: Bench) -> None:
    file = write_csv(bench.folder / "rows.csv", ROWS)
    table = pq.read_table(score(bench, file, "s.parquet")).to_pylist()
    lines = read_lines(score(bench, file, "s.jsonl"))
    assert [row["reward"] for row in table] == [row["reward"] for row in lines] == [1.0, 0.0]
    assert table[0]["response"] == lines[0]["response"] == "a"


def test_lists_of_responses(bench: Bench) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": "q", "responses": ["a", "bb"], "reward_model": "a"},
        {"prompt": "r", "responses": ["bb"], "reward_model": "bb"},
    ]
    file = write_csv(bench.folder / "rows.csv", rows)
    out = score(bench, file, "s.csv")
    assert [json.loads(row["reward"]) for row in cells(out)] == [[1.0, 0.0], [1.0]]
    worst = select(
        responses(out), where=condition("exact < 1"), by="reward", worst=None, best=None, count=9
    )
    assert [(item.response, item.columns["reward"]) for item in worst] == [("bb", 0.0)]


def test_a_job_that_breaks_off_goes_on_and_gives_the_same_bytes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"prompt": f"q{i}", "response": "a" * i, "reward_model": "aaa"} for i in range(9)]
    file = write_csv(bench.folder / "rows.csv", rows)
    clean = score(bench, file, "clean.csv", "data.batch_size=2")
    add = Job.add

    def add_twice(job: Job, *arguments: Any, **named: Any) -> None:
        if job.batches_done == 2:
            raise KeyboardInterrupt
        add(job, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Job, "add", add_twice)
        with pytest.raises(KeyboardInterrupt):
            score(bench, file, "killed.csv", "data.batch_size=2")
    assert not (bench.folder / "killed.csv").exists()
    assert "4 of 9 rows are scored and kept" in bench.notices[-1]
    killed = score(bench, file, "killed.csv", "data.batch_size=2")
    assert any("resuming: 4 of 9 rows were scored before" in text for text in bench.notices)
    assert killed.read_bytes() == clean.read_bytes()
    assert not list(bench.folder.glob("*.parts"))


def test_rows_with_other_columns_meet_in_one_header(bench: Bench) -> None:
    path = bench.folder / "rows.jsonl"
    path.write_text(
        '{"prompt": "q", "response": "a", "x": 1}\n'
        '{"prompt": "q", "response": "a", "y": null, "z": [1, "é"]}\n'
    )
    first, second = cells(score(bench, path, "s.csv"))
    assert list(first)[:6] == ["prompt", "response", "x", "y", "z", "reward"]
    assert (first["x"], first["z"], second["x"], second["z"]) == ("1", "", "", '[1, "é"]')


def test_a_wrong_column_names_those_that_are_there(bench: Bench) -> None:
    file = write_csv(bench.folder / "rows.csv", [{"question": "q", "answer": "a"}])
    with pytest.raises(DataError) as caught:
        score(bench, file, "s.csv")
    assert "saw only the columns question, answer; need a column 'prompt'" in str(caught.value)
    with pytest.raises(DataError, match="need a column 'response'"):
        score(bench, file, "s.csv", "data.prompt_key=question")
    keys = ("data.prompt_key=question", "data.response_key=answer")
    assert cells(score(bench, file, "s.csv", *keys))[0]["status_exact"] == "ok"

"""Scored files whose columns had other names: `rmrl_columns` says which, and show and report read
it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmrl.data.rows import read_rows
from rmrl.errors import DataError
from rmrl.main_report import main as report
from rmrl.main_show import main as show
from rmrl.offline.job import Job
from rmrl.offline.rewards import Rewards
from rmrl.offline.scored_responses import responses
from tests.inputs import read_lines, write_lines
from tests.offline.conftest import Bench

NAMES = "{prompt: question, reference: gold, response: answer, id: uid}"
AS_TEXT = '{"prompt": "question", "reference": "gold", "response": "answer", "id": "uid"}'
ROWS: list[dict[str, Any]] = [
    {"question": "2 + 2?", "gold": "04", "answer": "it is four", "uid": "a"},
    {"question": "3 + 3?", "gold": "06", "answer": "it is six", "uid": "b"},
]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize("names", [f"data.columns={NAMES}", ""])
def test_names_travel_with_the_file(
    bench: Bench, suffix: str, names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_lines(bench.folder / "rows.jsonl", ROWS)
    older = ["data.prompt_key=question", "data.response_key=answer", "data.columns.reference=gold"]
    out = bench.folder / f"scored.{suffix}"
    bench.scored(file, *([names] if names else older), out=out.name)
    texts = [row.fields["rmrl_columns"] for row in read_rows(out)]
    assert texts == [
        AS_TEXT if names else '{"prompt": "question", "response": "answer", "reference": "gold"}'
    ] * len(ROWS)
    assert show([str(out)]) == 0
    shown = capsys.readouterr().out
    for row in ROWS:
        for name in ("question", "answer"):
            assert f"\n  {row[name]}\n" in shown
        assert f"reference:\n  {row['gold']}\n" in shown  # a text, not the number 4
    assert report([str(out)]) == 0
    page = out.with_suffix(".html").read_text(encoding="utf-8")
    assert '"2 + 2?"' in page
    assert '"it is four"' in page
    assert '"04"' in page


def test_usual_names_leave_no_column(bench: Bench) -> None:
    bench.scored(bench.rows("four"), "data.columns={prompt: prompt}")
    (row,) = read_lines(bench.folder / "s.jsonl")
    assert "rmrl_columns" not in row


def test_names_of_an_earlier_job_are_replaced(bench: Bench) -> None:
    row = {"prompt": "new", "response": "four", "question": "old", "rmrl_columns": AS_TEXT}
    table = pa.Table.from_pylist([row])
    pq.write_table(table, bench.folder / "rows.parquet")
    for out in ("s.jsonl", "s.parquet", "s.csv"):
        bench.scored(bench.folder / "rows.parquet", out=out)
        (item,) = responses(bench.folder / out)
        assert (item.prompt, item.response) == ("new", "four")


def test_the_best_of_several_keep_their_names(bench: Bench) -> None:
    rows = [{"question": "2 + 2?", "answers": ["four", "is four", "4"], "tokens": [3, 5, 1]}]
    file = write_lines(bench.folder / "rows.jsonl", rows)
    columns = "data.columns={prompt: question, response: answers, response_tokens: tokens}"
    bench.scored(file, columns, "select=best")
    items = list(responses(bench.folder / "s.jsonl"))
    assert [(item.response, item.columns["response_tokens"]) for item in items] == [
        ("four", 3),
        ("is four", 5),
        ("4", 1),
    ]
    (best,) = responses(bench.folder / "s.best.jsonl")
    assert (best.prompt, best.response, best.columns["response_tokens"]) == ("2 + 2?", "is four", 5)


def test_a_job_that_broke_off_goes_on_with_its_names(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_lines(bench.folder / "rows.jsonl", ROWS)
    overrides = (f"data.files={file}", f"out={bench.folder}/s.jsonl", f"data.columns={NAMES}")
    bench.score(bench.checked(*overrides))
    whole = (bench.folder / "s.jsonl").read_bytes()
    checked = bench.checked(*overrides, "overwrite=true")

    def stops(job: Job) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("rmrl.offline.score.assemble", stops)
        with pytest.raises(KeyboardInterrupt):
            bench.score(checked)
    (bench.folder / "functions" / "length.py").write_text("raise RuntimeError")
    bench.score(checked)
    assert (bench.folder / "s.jsonl").read_bytes() == whole


def test_names_on_the_command_line_of_show_and_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"question": "2 + 2?", "answer": "four", "reward": 1.0, "score_a": 1.0, "status_a": "ok"}
    file = write_lines(tmp_path / "scored.jsonl", [row] * 9)
    columns = "data.columns={prompt: question, response: answer}"
    for words in ([columns], ["data.prompt_key=question", "data.columns.response=answer"]):
        assert show([str(file), *words]) == 0
        shown = capsys.readouterr().out
        assert "  2 + 2?\n" in shown
        assert "  four\n" in shown
    assert report([str(file), columns, "--out", str(tmp_path / "page.html")]) == 0
    assert '"2 + 2?"' in (tmp_path / "page.html").read_text(encoding="utf-8")
    capsys.readouterr()
    for command in (show, report):
        assert command([str(file), "data.columns={prompt: qestion}"]) == 6
        error = capsys.readouterr().err
        assert "data.columns.prompt=qestion: no row has such a column; did you mean" in error
    assert show([str(file), "data.files=x"]) == 2
    assert "data.files=x: rmrl show takes no such word; name the columns" in capsys.readouterr().err


def test_a_column_of_other_contents_is_named(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "s.jsonl", [{"reward": 1.0, "rmrl_columns": "prompt, response"}])
    with pytest.raises(DataError, match=r"s.jsonl row 0 .*'rmrl_columns': saw 'prompt, response'"):
        next(responses(file))


def test_rewards_in_memory_have_the_scores_of_the_file(bench: Bench) -> None:
    file = write_lines(bench.folder / "rows.jsonl", ROWS)
    bench.scored(file, f"data.columns={NAMES}")
    section = {
        "reward": {"models": ["length"], "functions_dir": f"{bench.folder}/functions"},
        "data": {"columns": json.loads(AS_TEXT)},
        "trainer": {"device": "cpu"},
    }
    with Rewards(section) as rewards:
        table = rewards.score_rows(ROWS)
    of_file = read_lines(bench.folder / "s.jsonl")
    for row in of_file:
        del row["rmrl_columns"]
    assert list(table) == of_file


def test_a_conversation_is_not_shown_as_python(tmp_path: Path) -> None:
    user = {"role": "user", "content": "2 + 2?"}
    guess = {"role": "assistant", "content": "5?"}
    tool = {"role": "tool", "content": "no"}
    last = {"role": "assistant", "content": "four"}
    scored = {"reward": 1.0, "score_a": 1.0, "status_a": "ok"}
    rows: list[dict[str, Any]] = [
        {"messages": [user, guess, tool, last], **scored},
        {"prompt": [user], "response": [guess, tool, last], **scored},
        {
            "talk": [user, guess, tool, last],
            "rmrl_columns": '{"prompt": "talk", "response": "talk"}',
        }
        | scored,
    ]
    for item in responses(write_lines(tmp_path / "s.jsonl", rows)):
        assert item.prompt == "[user] 2 + 2?\n[assistant] 5?\n[tool] no"
        assert item.response == "four"
    several = {"prompt": [user], "responses": [[guess, tool, last], [last]]}
    listed = {name: [value] * 2 for name, value in scored.items()}
    first, second = responses(write_lines(tmp_path / "s.jsonl", [{**several, **listed}]))
    assert (first.prompt, first.response) == (
        "[user] 2 + 2?\n[assistant] 5?\n[tool] no",
        "four",
    )
    assert (second.prompt, second.response) == ("[user] 2 + 2?", "four")

"""`data.columns`: values of rows in columns of any name, with and without dots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.load import compose_config
from rmrl.config.schema import DataConfig, ScoreConfig, ScoreDataConfig
from rmrl.data.column_names import ABSENT, at_path
from rmrl.data.dataset import iterate_rows
from rmrl.data.responses import AnsweredRow, answered_rows
from rmrl.errors import ConfigError, DataError
from tests.inputs import write_lines

SCORES = {
    "rm_scores": {"X": {"Llama-3.1-8B": 0.25, "Llama-3": {"1-8B": 4, "1": 5}}},
    "plain.name": 1,
    "list": [{"a": 7}],
    "cell": '{"deep": {"er": 2}}',
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("plain.name", 1),
        ("rm_scores.X.Llama-3.1-8B", 0.25),
        ("rm_scores.X.Llama-3.1", 5),
        ("list.0.a", 7),
        ("cell.deep.er", 2),
        ("list.1.a", ABSENT),
        ("rm_scores.X.Llama-3.2", ABSENT),
        ("plain", ABSENT),
    ],
)
def test_dots_lead_into_a_column_and_belong_to_names(path: str, value: object) -> None:
    assert at_path(SCORES, path) == value


ROWS: list[dict[str, Any]] = [
    {"question": "2 + 2?", "meta": {"gold.v1": 4}, "answer": "four", "uid": 17, "from": "sums"},
    {"question": "3 + 3?", "meta": {"gold.v1": 6}, "answer": ["six", "7"], "uid": 18, "from": "s"},
]
COLUMNS = {
    "prompt": "question",
    "reference": "meta.gold.v1",
    "response": "answer",
    "id": "uid",
    "data_source": "from",
}


def answered(path: Path, rows: list[dict[str, Any]], **columns: str) -> list[AnsweredRow]:
    file = write_lines(path / "rows.jsonl", rows)
    return list(answered_rows(ScoreDataConfig(files=str(file), columns=columns)))


def test_a_row_is_read_under_the_names_of_its_columns(tmp_path: Path) -> None:
    first, second = answered(tmp_path, ROWS, **COLUMNS)
    assert first.prompt.messages == ({"role": "user", "content": "2 + 2?"},)
    assert (first.prompt.ground_truth, second.prompt.ground_truth) == ("4", "6")
    assert (first.texts, second.texts) == (("four",), ("six", "7"))
    assert (first.prompt.id, first.prompt.data_source) == ("17", "sums")
    assert first.fields == ROWS[0]


def test_a_csv_file_has_other_columns_too(tmp_path: Path) -> None:
    turns = json.dumps([{"role": "user", "content": "2 + 2?"}]).replace('"', '""')
    lines = ["q,a,about", f'"{turns}",,"{{""gold"": 4}}"']
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    columns = {"prompt": "q", "response": "a", "reference": "about.gold"}
    (row,) = answered_rows(ScoreDataConfig(files=str(tmp_path / "rows.csv"), columns=columns))
    assert row.prompt.messages == ({"role": "user", "content": "2 + 2?"},)
    assert (row.texts, row.prompt.ground_truth) == (("",), "4")


def test_training_reads_the_same_names(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "rows.jsonl", ROWS)
    config = DataConfig(train_files=str(file), columns=COLUMNS)
    rows = list(iterate_rows(config, split="train"))
    assert [(row.id, row.ground_truth) for row in rows] == [("17", "4"), ("18", "6")]
    config.columns = {**COLUMNS, "reference": "meta.glod"}
    with pytest.raises(DataError, match=r"data.columns.reference=meta.glod: no row has"):
        list(iterate_rows(config, split="train"))


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        (
            {**COLUMNS, "reference": "meta.gold"},
            DataError,
            "data.columns.reference=meta.gold: no row has such a column; did you mean"
            " 'meta.gold.v1'",
        ),
        ({**COLUMNS, "ability": "skil"}, DataError, "data.columns.ability=skil: no row has"),
        ({**COLUMNS, "prompt": "qestion"}, DataError, "did you mean data.columns.prompt=question"),
        ({"promt": "question"}, ConfigError, "data.columns.promt: no value of that name; did you"),
        ({"prompt": ["question"]}, ConfigError, "data.columns.prompt=['question']: give the name"),
        ({"prompt": None}, ConfigError, "data.columns.prompt=None: give the name of one column"),
    ],
)
def test_a_column_that_is_in_no_row_is_an_error(
    tmp_path: Path, columns: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as caught:
        answered(tmp_path, ROWS, **columns)
    assert words in str(caught.value)


def test_a_column_that_some_rows_lack_is_null_there(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "response": "b"}, {"prompt": "a", "response": "b", "gold": "c"}]
    first, second = answered(tmp_path, rows, reference="gold")
    assert (first.prompt.ground_truth, second.prompt.ground_truth) == (None, "c")


def test_a_column_has_one_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data.columns.prompt and data.prompt_key both name"):
        answered_rows(ScoreDataConfig(columns={"prompt": "a"}, prompt_key="b"))


def test_the_command_line_takes_names_with_dots() -> None:
    columns = "data.columns={prompt: question, reference: rm_scores.X.Llama-3.1-8B, id: uid}"
    config = compose_config([columns, "data.columns.response=a.b"], ScoreConfig)
    assert config.data.columns == {
        "prompt": "question",
        "reference": "rm_scores.X.Llama-3.1-8B",
        "id": "uid",
        "response": "a.b",
    }
    for words in ("data.columns=question", "data.columns=[question]"):
        with pytest.raises(ConfigError, match=r"give names with their values, e.g. data.columns={"):
            compose_config([words], ScoreConfig)

from __future__ import annotations

import numpy as np
import pytest

from rmrl.config.schema import DataConfig
from rmrl.data.dataset import iterate_rows
from rmrl.data.write import write_rows
from rmrl.errors import DataError

ROWS = [
    {
        "prompt": [{"role": "user", "content": "é 日本"}],
        "data_source": "s",
        "extra_info": {"i": np.int64(1)},
    },
    {
        "prompt": [{"role": "user", "content": "b"}],
        "rm_prompt_judge": "told",
        "reward_model": {"style": "rule", "ground_truth": "7"},
    },
]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_what_is_written_is_what_loads(tmp_path, suffix: str):
    path = tmp_path / "new" / f"rows{suffix}"
    assert write_rows(path, iter(ROWS), overwrite=False) == 2
    first, second = iterate_rows(DataConfig(train_files=str(path)), split="train")
    assert first.messages[0]["content"] == "é 日本"
    assert first.data_source == "s"
    assert first.extra_info == {"i": 1}
    assert second.rm_prompts == {"judge": "told"}
    assert second.ground_truth == "7"
    assert second.data_source == ""
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_an_existing_file_is_left_alone_unless_asked(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("mine")
    with pytest.raises(DataError, match=r"rows.jsonl exists already .* --overwrite"):
        write_rows(path, ROWS, overwrite=False)
    assert path.read_text() == "mine"
    write_rows(path, ROWS, overwrite=True)
    assert path.read_text().count("\n") == 2


@pytest.mark.parametrize(("suffix", "read"), [(".parquet", "a \ufffd"), (".jsonl", "a \ud83d")])
def test_half_a_letter_is_written(tmp_path, suffix: str, read: str):
    path = tmp_path / f"rows{suffix}"
    write_rows(path, [{"prompt": "a \ud83d", "extra_info": {"of": ["\ud83d"]}}], overwrite=False)
    (row,) = iterate_rows(DataConfig(train_files=str(path)), split="train")
    assert (row.messages[0]["content"], row.extra_info) == (read, {"of": [read[2:]]})


TWO_TYPES = [
    {"prompt": "a", "rm_prompt": "text"},
    {"prompt": "b", "rm_prompt": [{"role": "user", "content": "c"}]},
]


@pytest.mark.parametrize(
    ("name", "rows", "named"),
    [
        ("rows.parquet", [ROWS[0], {"prompt": 5}], "rows.parquet.*row 1, column 'prompt': saw 5"),
        ("rows.parquet", [], "no rows"),
        ("rows.parquet", TWO_TYPES, r"column 'rm_prompt'.*\.jsonl"),
        ("rows.csv", ROWS, "'.csv'.*.parquet or .jsonl"),
    ],
)
def test_what_cannot_be_written_leaves_no_file(tmp_path, name: str, rows: list, named: str):
    with pytest.raises(DataError, match=f"(?s){named}"):
        write_rows(tmp_path / name, rows, overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_a_column_of_two_types_can_be_json_lines(tmp_path):
    assert write_rows(tmp_path / "rows.jsonl", TWO_TYPES, overwrite=False) == 2


def test_empty_mappings_survive_parquet(tmp_path):
    write_rows(tmp_path / "rows.parquet", [{"prompt": "a", "extra_info": {}}], overwrite=False)
    (row,) = iterate_rows(DataConfig(train_files=str(tmp_path / "rows.parquet")), split="train")
    assert row.extra_info == {}

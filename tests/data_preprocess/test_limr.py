from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmrl.config.schema import DataConfig
from rmrl.data.dataset import iterate_rows
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
MATH500 = ROOT.parent / "shared" / "data" / "math" / "math500.jsonl"
TEMPLATED = (
    "<|im_start|>system\nReason.<|im_end|>\n<|im_start|>user\nTwo"
    " threes?<|im_end|>\n<|im_start|>assistant\n"
)


@pytest.fixture(scope="module")
def limr() -> ModuleType:
    return load_script(ROOT / "data_preprocess" / "limr.py")


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"prompt": "Two threes?"}, "Two threes?"),
        ({"problem": " Two threes? "}, "Two threes?"),
        ({"prompt": TEMPLATED}, "Two threes?"),
        (
            {
                "context_messages": [
                    {"role": "system", "content": "Reason."},
                    {"role": "user", "content": "Two threes?"},
                ]
            },
            "Two threes?",
        ),
        ({"prompt": [{"role": "system", "content": "Reason."}]}, None),
        ({"prompt": 3}, None),
        ({"text": "Two threes?"}, None),
    ],
)
def test_problem_of(limr: ModuleType, record: dict[str, Any], problem: str | None):
    assert limr.problem_of(record) == problem


def test_parquet_in_the_authors_layout(limr: ModuleType, tmp_path: Path):
    messages = [
        {"role": "system", "content": "Reason."},
        {"role": "user", "content": "Two threes?"},
    ]
    rows = [
        {
            "id": "math/7",
            "context_messages": messages,
            "context": TEMPLATED,
            "answer": "6",
            "source": "MATH",
        }
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "limr.parquet")
    test = tmp_path / "math500.jsonl"
    test.write_text(
        json.dumps({"problem": "One and one?", "solution": "...", "answer": "2"}) + "\n"
    )
    out = tmp_path / "out"
    assert (
        limr.main(
            [
                "--source",
                str(tmp_path / "limr.parquet"),
                "--test-source",
                str(test),
                "--out",
                str(out),
            ]
        )
        == 0
    )
    (row,) = iterate_rows(DataConfig(train_files=str(out / "train.parquet")), split="train")
    assert row.messages == (
        {"role": "system", "content": limr.SYSTEM},
        {"role": "user", "content": "Two threes?"},
    )
    assert row.data_source == "GAIR/LIMR"
    assert row.ground_truth == "6"
    assert row.rm_prompts[""] == "Two threes?"
    assert row.extra_info == {"split": "train", "index": 0, "id": "math/7"}
    (held_out,) = iterate_rows(DataConfig(val_files=str(out / "test.parquet")), split="val")
    assert held_out.ground_truth == "2"


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        (
            {"text": "x", "answer": "1"},
            ["saw the fields text, answer", "need a problem in one of problem, question, prompt"],
        ),
        ({"prompt": "x", "answer": ""}, ["column 'answer'", "saw ''"]),
        ({"prompt": "x", "answer": ["1"]}, ["column 'answer'", "['1']"]),
    ],
)
def test_a_malformed_row_is_named(
    limr: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    row: dict[str, Any],
    parts: list[str],
):
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"prompt": "a", "answer": "1"}) + "\n" + json.dumps(row) + "\n")
    assert limr.main(["--source", str(path), "--out", str(tmp_path / "out")]) == 6
    message = capsys.readouterr().err
    assert all(part in message for part in [f"{path} row 1 (line 2)", *parts]), message
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not MATH500.exists(), reason="the real MATH-500 is not beside the checkout")
def test_problems_of_math500_as_rows(limr: ModuleType, tmp_path: Path):
    assert limr.main(["--source", str(MATH500), "--test-share", "0.2", "--out", str(tmp_path)]) == 0
    assert sum(pq.read_table(tmp_path / f"{s}.parquet").num_rows for s in ("train", "test")) == 415

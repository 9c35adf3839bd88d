"""The SFT example: what it trains on, and TRL's trainer on a tiny model."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rmrl.data.write import write_rows
from tests.scripts import load_script

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "sft_then_grpo" / "sft.py"


@pytest.fixture(scope="module")
def sft() -> ModuleType:
    return load_script(SCRIPT)


def rows_of(path: Path, *extra: dict[str, Any], truth: str | None = "2") -> Path:
    rows = [
        {
            "prompt": f"question {n}",
            "reward_model": {"ground_truth": truth},
            "extra_info": {"index": n, **e},
        }
        for n, e in enumerate(extra)
    ]
    write_rows(path, rows, overwrite=True)
    return path


def test_a_worked_solution_comes_before_the_bare_answer(sft: ModuleType, tmp_path: Path):
    path = rows_of(
        tmp_path / "train.jsonl",
        {"answer": "1+1 is 2\n#### 2"},
        {"solution": "\\boxed{2}"},
        {"answer": None},
    )
    made = sft.examples(path, -1)
    assert [example["completion"][0]["content"] for example in made] == [
        "1+1 is 2\n#### 2",
        "\\boxed{2}",
        "2",
    ]
    assert made[0]["prompt"] == [{"role": "user", "content": "question 0"}]
    assert len(sft.examples(path, 2)) == 2


def test_a_row_without_an_answer_is_named(
    sft: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("trl")
    path = rows_of(tmp_path / "train.jsonl", {}, truth=None)
    assert sft.main(["--model", "gone", "--data", str(path), "--out", str(tmp_path / "out")]) == 6
    assert "row 0 (line 1): no answer to learn from" in capsys.readouterr().err

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from reward_functions.arithmetic import compute_score
from tests.scripts import load_script

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "arithmetic" / "make_data.py"


@pytest.fixture(scope="module")
def make_data() -> ModuleType:
    return load_script(SCRIPT)


def test_files_are_disjoint_and_right(make_data: ModuleType, tmp_path: Path) -> None:
    make_data.main(["--out", str(tmp_path), "--train", "300", "--test", "50"])
    rows = {
        part: pq.read_table(tmp_path / f"{part}.parquet").to_pylist() for part in ("train", "test")
    }
    questions = {part: {row["prompt"][0]["content"] for row in rows[part]} for part in rows}
    assert (len(questions["train"]), len(questions["test"])) == (300, 50)
    assert not questions["train"] & questions["test"]
    for row in rows["train"]:
        left, sign, right = (
            row["prompt"][0]["content"]
            .rstrip("=")
            .partition("-" if "-" in row["prompt"][0]["content"] else "+")
        )
        answer = int(left) + int(right) if sign == "+" else int(left) - int(right)
        assert row["reward_model"]["ground_truth"] == str(answer)
        assert (
            compute_score(row["data_source"], str(answer), row["reward_model"]["ground_truth"])
            == 1.0
        )


def test_same_seed_same_files(make_data: ModuleType, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        make_data.main(["--out", str(tmp_path / folder), "--train", "100", "--test", "20"])
    assert pq.read_table(tmp_path / "a" / "train.parquet").equals(
        pq.read_table(tmp_path / "b" / "train.parquet")
    )


def test_asking_for_more_than_there_is_says_how_many_there_are(
    make_data: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        make_data.main(["--out", str(tmp_path), "--largest", "9", "--train", "100000"])
    assert "--train 100000: --largest 9 gives" in capsys.readouterr().err

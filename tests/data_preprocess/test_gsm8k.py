from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmrl.config.schema import DataConfig
from rmrl.data.dataset import iterate_rows
from tests.inputs import write_lines
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "data_preprocess" / "gsm8k.py"


@pytest.fixture(scope="module")
def gsm8k():
    return load_script(SCRIPT)


def write(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines(path, rows)
    return path


TRAIN = [{"question": f"q{i}?", "answer": f"work\n#### 1,{i:03d}"} for i in range(4)]
TEST = [
    {"question": "t0?", "solution": "work\n#### -5", "answer": "-5"},
    {"question": "q2?", "solution": "#### $7"},
]


@pytest.fixture
def source(tmp_path):
    write(tmp_path / "src" / "gsm8k_train.jsonl", TRAIN)
    write(tmp_path / "src" / "gsm8k_test.jsonl", TEST)
    return tmp_path / "src"


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("x #### 1,234", "1234"),
        ("#### 1 #### 2 ", "2"),
        ("#### $7", "7"),
        ("#### -0.5", "-0.5"),
        ("none", None),
        ("####", None),
    ],
)
def test_final_answer(gsm8k, solution: str, answer: str | None):
    assert gsm8k.final_answer(solution) == answer


def test_a_folder_becomes_two_files_that_load(gsm8k, source, tmp_path, capsys):
    out = tmp_path / "out"
    assert gsm8k.main(["--source", str(source), "--out", str(out)]) == 0
    train = list(iterate_rows(DataConfig(train_files=str(out / "train.parquet")), split="train"))
    test = list(iterate_rows(DataConfig(val_files=str(out / "test.parquet")), split="val"))
    # q2 is a test question too and has left the training split.
    assert [(r.rm_prompts[""], r.ground_truth) for r in train] == [
        ("q0?", "1000"),
        ("q1?", "1001"),
        ("q3?", "1003"),
    ]
    assert [(r.rm_prompts[""], r.ground_truth) for r in test] == [("t0?", "-5"), ("q2?", "7")]
    assert test[0].messages == ({"role": "user", "content": f"t0? {gsm8k.INSTRUCTION}"},)
    assert (test[0].data_source, test[0].ability) == ("openai/gsm8k", "math")
    assert test[0].extra_info == {
        "split": "test",
        "index": 0,
        "question": "t0?",
        "answer": "work\n#### -5",
    }
    assert "1 questions left out" in capsys.readouterr().out


def test_one_file_is_one_split(gsm8k, source, tmp_path):
    assert (
        gsm8k.main(["--source", str(source / "gsm8k_test.jsonl"), "--out", str(tmp_path / "out")])
        == 0
    )
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["test.parquet"]


def test_existing_files_are_left_alone(gsm8k, source, tmp_path, capsys):
    args = ["--source", str(source), "--out", str(tmp_path / "out")]
    assert gsm8k.main(args) == 0
    assert gsm8k.main(args) == 6
    assert "train.parquet exists already" in capsys.readouterr().err
    assert gsm8k.main([*args, "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        (
            [{"q": "x", "a": "y"}],
            ["row 0 (line 1)", "saw the fields q, a", "need question and answer"],
        ),
        (
            [TRAIN[0], {"question": "x", "answer": "no mark"}],
            ["row 1 (line 2)", "'no mark'", '"####"'],
        ),
    ],
)
def test_malformed_records(gsm8k, tmp_path, capsys, rows: list[dict], parts: list[str]):
    path = write(tmp_path / "train.jsonl", rows)
    assert gsm8k.main(["--source", str(path), "--out", str(tmp_path / "out")]) == 6
    message = capsys.readouterr().err
    assert all(part in message for part in [str(path), *parts]), message
    assert not (tmp_path / "out").exists()


def test_sources_that_do_not_exist(gsm8k, tmp_path, capsys):
    assert gsm8k.main(["--source", str(tmp_path / "gone"), "--out", str(tmp_path)]) == 6
    assert "does not exist; need a hub id" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert gsm8k.main(["--source", str(tmp_path / "empty"), "--out", str(tmp_path)]) == 6
    assert "holds nothing; need one file named *train*" in capsys.readouterr().err


def test_help_from_the_command_line():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--help"],
        capture_output=True,
        text=True,
        timeout=300,
        env={"PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert "--overwrite" in done.stdout
    assert "openai/gsm8k" in done.stdout


DATA = ROOT.parent / "shared" / "data" / "math"


@pytest.mark.skipif(
    not (DATA / "gsm8k_train.jsonl").exists(), reason="the real GSM8K is not beside the checkout"
)
def test_the_real_thing(gsm8k, tmp_path):
    assert gsm8k.main(["--source", str(DATA), "--out", str(tmp_path)]) == 0
    train, test = (pq.read_table(tmp_path / f"{s}.parquet").to_pylist() for s in ("train", "test"))
    assert (len(train), len(test)) == (5961, 1063)
    assert not {r["rm_prompt"] for r in train} & {r["rm_prompt"] for r in test}
    recorded = [json.loads(line)["answer"] for line in (DATA / "gsm8k_test.jsonl").open()]
    assert [r["reward_model"]["ground_truth"] for r in test] == [
        a.replace(",", "") for a in recorded
    ]

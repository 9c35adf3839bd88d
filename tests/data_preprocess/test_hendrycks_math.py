from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmrl.config.schema import DataConfig
from rmrl.data.dataset import iterate_rows
from rmrl.rewards.answers import math_equal
from tests.inputs import write_lines
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
MATH500 = ROOT.parent / "shared" / "data" / "math" / "math500.jsonl"


@pytest.fixture(scope="module")
def math() -> ModuleType:
    return load_script(ROOT / "data_preprocess" / "hendrycks_math.py")


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    write_lines(path, rows)
    return str(path)


ROWS = [
    {
        "problem": "Half of one?",
        "solution": "It is $\\boxed{\\frac{1}{2}}$.",
        "level": "Level 3",
        "type": "Algebra",
    },
    {
        "problem": "One and one?",
        "solution": "no box",
        "answer": "2",
        "level": 1,
        "subject": "Prealgebra",
    },
    {
        "problem": "Two threes?",
        "solution": "\\boxed{5}, no: $\\boxed 6$ wait $\\fbox{6}$",
        "level": "Level ?",
    },
]


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("$\\boxed{\\frac{1}{2}}$", "\\frac{1}{2}"),
        ("\\boxed{1} then \\boxed{2}", "2"),
        ("\\fbox{7}", "7"),
        ("so $\\boxed 5$.", "5"),
        ("\\boxed{}", None),
        ("\\boxed{3", None),
        ("nothing", None),
    ],
)
def test_boxed_answer(math: ModuleType, solution: str, answer: str | None):
    assert math.boxed_answer(solution) == answer


def test_rows_load_and_the_reference_scores_itself(math: ModuleType, tmp_path: Path):
    test = write(tmp_path / "my_test.jsonl", [ROWS[1]])
    train = write(tmp_path / "train.jsonl", ROWS)
    out = tmp_path / "out"
    assert math.main(["--source", train, "--test-source", test, "--out", str(out)]) == 0
    rows = list(iterate_rows(DataConfig(train_files=str(out / "train.parquet")), split="train"))
    # "One and one?" is a test problem too and has left the training split.
    assert [(row.rm_prompts[""], row.ground_truth) for row in rows] == [
        ("Half of one?", "\\frac{1}{2}"),
        ("Two threes?", "6"),
    ]
    assert rows[0].messages == ({"role": "user", "content": f"Half of one? {math.INSTRUCTION}"},)
    assert (rows[0].data_source, rows[0].ability) == ("hendrycks/math", "math")
    assert (rows[0].extra_info["level"], rows[0].extra_info["subject"]) == (3, "Algebra")
    assert rows[1].extra_info["level"] is None
    assert math_equal.score("so $\\boxed{0.5}$", rows[0].ground_truth or "") == 1.0


def test_levels_keep_training_rows_only(math: ModuleType, tmp_path: Path):
    source = tmp_path / "both"
    source.mkdir()
    write(source / "train.jsonl", ROWS)
    write(source / "test.jsonl", [{**ROWS[1], "problem": "Three?", "level": 5}])
    assert (
        math.main(["--source", str(source), "--levels", "3", "--out", str(tmp_path / "out")]) == 0
    )
    assert [
        pq.read_table(tmp_path / "out" / f"{s}.parquet").num_rows for s in ("train", "test")
    ] == [1, 1]


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ({"question": "x", "answer": "1"}, ["column 'problem'", "saw the fields question, answer"]),
        ({"problem": "x", "solution": "ends"}, ["column 'solution'", "'ends'", "in \\boxed{}"]),
        ({"problem": "x", "answer": " "}, ["column 'solution'", "nothing"]),
    ],
)
def test_a_malformed_row_is_named(
    math: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    row: dict[str, Any],
    parts: list[str],
):
    path = write(tmp_path / "train.jsonl", [ROWS[0], row])
    assert math.main(["--source", path, "--out", str(tmp_path / "out")]) == 6
    message = capsys.readouterr().err
    assert all(part in message for part in [f"{path} row 1 (line 2)", *parts]), message
    assert not (tmp_path / "out").exists()


def test_options_that_contradict_each_other(
    math: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = write(tmp_path / "train.jsonl", ROWS)
    for more, part in (
        (["--test-share", "0.5", "--test-source", path], "both given"),
        (["--test-share", "1"], "from 0 to below 1"),
    ):
        assert math.main(["--source", path, "--out", str(tmp_path / "out"), *more]) == 2
        assert part in capsys.readouterr().err


def test_a_share_that_leaves_nothing(
    math: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = write(tmp_path / "train.jsonl", ROWS)
    assert (
        math.main(["--source", path, "--test-share", "0.0000001", "--out", str(tmp_path / "out")])
        == 6
    )
    assert "leaves no test row of 3" in capsys.readouterr().err


@pytest.mark.skipif(not MATH500.exists(), reason="the real MATH-500 is not beside the checkout")
def test_the_real_thing(math: ModuleType, tmp_path: Path):
    assert math.main(["--source", str(MATH500), "--test-share", "0.2", "--out", str(tmp_path)]) == 0
    train, test = (pq.read_table(tmp_path / f"{s}.parquet").to_pylist() for s in ("train", "test"))
    assert len(train) + len(test) == 415
    assert 60 <= len(test) <= 110  # a fifth of 415 is 83
    assert not {row["rm_prompt"] for row in train} & {row["rm_prompt"] for row in test}
    for row in test[:25]:
        assert (
            math_equal.score(
                f"so $\\boxed{{{row['reward_model']['ground_truth']}}}$",
                row["reward_model"]["ground_truth"],
            )
            == 1.0
        )

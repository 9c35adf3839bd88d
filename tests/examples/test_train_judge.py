"""examples/train_judge: its data, its rewards, and the commands around the training."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmrl.rewards.dropins.dropin import load_module
from tests.examples.test_training_examples import Given

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "train_judge"
FUNCTIONS = "examples/train_judge/reward_functions"


def module(name: str) -> Any:
    return load_module(EXAMPLE / "reward_functions" / f"{name}.py")


def test_each_pair_is_asked_in_both_orders(tmp_path: Path) -> None:
    """Twelve pairs, of which every fourth is held out."""
    pairs = ROOT / "examples" / "judge_a_judge" / "pairs.jsonl"
    command = [sys.executable, str(EXAMPLE / "make_data.py"), "--train", str(pairs)]
    subprocess.run([*command, "--out", str(tmp_path)], check=True, timeout=300, cwd=ROOT)
    rows = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert len(rows) == 18
    first, second = rows[:2]
    answers = [row["reward_model"]["ground_truth"] for row in (first, second)]
    assert answers == ["A", "B"]
    assert first["prompt"] == second["rm_prompt_consistent"]
    assert second["prompt"] == first["rm_prompt_consistent"]
    text = first["prompt"][0]["content"]
    assert text.index("Reply A:\nCanberra.") < text.index("Reply B:\nSydney")
    held_out = (tmp_path / "held_out.jsonl").read_text(encoding="utf-8").splitlines()
    assert [set(json.loads(line)) for line in held_out] == [{"prompt", "chosen", "rejected"}] * 3
    assert pq.read_table(tmp_path / "test.parquet").num_rows == 6


@pytest.mark.parametrize(
    ("text", "agrees"), [("Better. [[A]]", 1.0), ("Worse. [[B]]", 0.0), ("Hard to say.", 0.0)]
)
def test_agreement(text: str, agrees: float) -> None:
    assert module("agrees").compute_score("pairs", text, "A")["score"] == agrees


def test_consistency_is_the_other_letter_in_the_other_order() -> None:
    swapped = ["[[A]]", "[[A]]", "no verdict", "[[B]]"]
    responses = ["[[B]]", "[[A]]", "[[A]]", "no verdict"]
    assert module("consistent").rm_postprocess(swapped, responses) == [1.0, 0.0, 0.0, 0.0]


def test_brevity() -> None:
    scores = [module("brief").compute_score("", "w " * count, "") for count in (0, 60, 500)]
    assert scores == [1.0, 0.5, 0.0]


def test_the_judge_is_measured_with_the_prompt_that_is_trained() -> None:
    judge = module("pairwise")
    asked = judge.rm_preprocess(["Q"], [("one", "two")], None)
    assert asked == [judge.asked("Q", "one", "two")]
    assert judge.rm_postprocess(["[[A]]", "[[B]]", "neither"]) == [1.0, 0.0, None]


def test_it_is_measured_before_the_training(tmp_path: Path) -> None:
    given = Given("train_judge", tmp_path, SMALL="0", POLICY="/p", RUNS=str(tmp_path / "runs"))
    measured = given.commands[-1]
    assert measured.startswith(
        f"-m rmrl.main_eval eval.format=pairs data.files={tmp_path}/held_out"
    )
    assert f"reward.functions_dir={FUNCTIONS} reward.models=[pairwise]" in measured
    assert measured.endswith(f"out={tmp_path}/runs/before")
    assert given.config().reward.models == ["agrees", "consistent", "brief"]

"""Where the time went: seconds of stages, rewards and engines, of a run and of a scored file."""

from __future__ import annotations

from pathlib import Path

from rmrl import main_score
from rmrl.config.load import shipped
from rmrl.report.sources import source_of
from rmrl.report.times import time_spent
from tests.inputs import read_lines, write_lines
from tests.report.samples import write_run


def test_the_time_of_a_run_is_that_of_its_steps(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    first = {
        "step": 1, "time/step_s": 10.0, "time/generate_s": 6.0, "time/score_s": 3.0,
        "time/other_s": 1.0, "time/score/judge": 2.5, "time/score/a/b": 3.0,
        "engine/judge+a/b/load_s": 2.0, "engine/judge+a/b/loads": 1.0,
    }  # fmt: skip
    second = {
        "step": 2, "time/step_s": 5.0, "time/generate_s": 4.0, "time/score_s": 0.5,
        "time/other_s": 0.5, "time/score/judge": 0.5,
        "engine/judge+a/b/wake_s": 0.25, "engine/judge+a/b/sleep_s": 0.5,
    }  # fmt: skip
    # The run was interrupted and did step 2 again.
    cut_off = {"step": 2, "time/step_s": 90.0}
    write_lines(run / "metrics.jsonl", [{"step": 0, "val/reward": 1.0}, first, cut_off, second])
    assert time_spent(source_of(run, "run", {}), responses=4) == {
        "seconds": 15.0,
        "of": "2 steps",
        "stages": {"generate": 10.0, "score": 3.5, "other": 1.5},
        "rewards": {"judge": 3.0, "a/b": 3.0},
        "engines": {"judge+a/b": [2.0, 0.25, 0.5, 0.0]},
    }


def test_a_run_without_times_has_no_table(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_lines(run / "metrics.jsonl", [{"step": 1, "reward/mean": 1.0}])
    assert time_spent(source_of(run, "run", {}), responses=4) is None


def test_the_time_of_a_scored_file_stands_beside_it(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    reference = {"style": "rule", "ground_truth": "7"}
    row = {"prompt": "3 + 4", "response": "#### 7", "reward_model": reference}
    write_lines(rows, [row, {**row, "response": "#### 8"}])
    scored = tmp_path / "scored.jsonl"
    words = ["reward.models=[gsm8k]", f"reward.functions_dir={shipped('reward_functions')}"]
    words += [f"data.files={rows}", f"out={scored}", "reward.rule_workers=1", "trainer.device=cpu"]
    assert main_score.main(words) == 0
    spent = time_spent(source_of(scored, "scored", {}), responses=2)
    assert spent is not None
    assert 0 < spent["rewards"]["gsm8k"] <= spent["seconds"]
    assert (spent["stages"], spent["engines"], spent["of"]) == ({}, {}, "scoring")
    # A file of another length was written since by another program.
    write_lines(scored, read_lines(scored)[:1])
    assert time_spent(source_of(scored, "scored", {}), responses=1) is None
    (tmp_path / "scored.jsonl.summary.json").write_text("[cut")
    assert time_spent(source_of(scored, "scored", {}), responses=2) is None

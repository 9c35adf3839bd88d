"""The parts of benchmarks/training that decide what its numbers mean."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.training import ours, padding
from benchmarks.training.__main__ import compared, in_turns
from benchmarks.training.job import TASKS, Job, read
from benchmarks.training.processes import family_bytes
from benchmarks.training.show import draw, table
from benchmarks.training.theirs import compute_score
from rmrl.backends.micro_batches import Limits, cut

JOB = Job(
    model="m",
    task="sums",
    prompts=2,
    n=3,
    max_tokens=8,
    steps=2,
    warmup=1,
    dtype="float32",
    threads=1,
)


def test_a_job_travels_by_file(tmp_path: Path) -> None:
    assert read(JOB.write(tmp_path / "job.json")) == JOB
    assert JOB.responses == 6


@pytest.mark.parametrize("task", TASKS)
def test_every_step_has_rows_of_its_own_and_the_rule_knows_their_answers(task: str) -> None:
    rows = dataclasses.replace(JOB, task=task).rows
    assert len(rows) == 2 * 3
    assert rows == dataclasses.replace(JOB, task=task).rows
    score = compute_score()
    for row in rows:
        truth = row["reward_model"]["ground_truth"]
        assert score("arithmetic", f"It is {truth}.", truth) == 1.0
        assert score("arithmetic", f"It is {int(truth) + 1}.", truth) == 0.0


def test_a_word_problem_adds_up() -> None:
    [row, *_] = dataclasses.replace(JOB, task="worded").rows
    numbers = [
        int(word) for word in row["prompt"][0]["content"].replace(".", "").split() if word.isdigit()
    ]
    assert sum(numbers) == int(row["reward_model"]["ground_truth"])


def test_what_rmrl_says_of_a_step() -> None:
    step = {
        "time/step_s": 2.0, "time/generate_s": 0.5, "time/update_s": 1.0, "time/publish_s": 0.4, "time/score_s": 0.02,
        "perf/tokens_per_s": 50.0, "response/length_mean": 5.0, "reward/mean": 0.5,
    }  # fmt: skip
    found = ours.result([step, step], JOB, 7)
    assert found["tokens"] == [100, 100]  # 50 a second, 2 seconds
    assert found["response_tokens"] == [30, 30]  # 6 responses of 5
    assert found["not_model_share"] == pytest.approx(0.05)  # 2.0 - 0.5 - 1.0 - 0.4 = 0.1 of 2.0
    assert found["peak_bytes"] == 7


def side(seconds: float, tokens: int, peak: int) -> dict[str, Any]:
    return {
        "step_s": [seconds, seconds], "tokens": [tokens, tokens], "peak_bytes": peak, "not_model_share": 0.02,
        "phases_s": {"generate": [seconds / 2] * 2, "update": [seconds / 2] * 2},
    }  # fmt: skip


def test_ratios_are_against_their_fastest_way(tmp_path: Path) -> None:
    runs = {
        "rmrl": [side(2.0, 100, 4), side(1.0, 100, 4)],
        "slow": [side(9.0, 100, 2)] * 2,
        "fast": [side(4.0, 50, 2), side(3.0, 150, 2)],
    }
    found = compared(runs)
    assert found["fastest"] == "fast"
    assert found["ratios"]["seconds_per_step"] == {
        "median": 2.5,
        "min": 2.0,
        "max": 3.0,
    }  # 4 / 2 and 3 / 1
    # ours 50 and 100 tokens a second, theirs 12.5 and 50
    assert found["ratios"]["seconds_per_token"] == {"median": 3.0, "min": 2.0, "max": 4.0}
    assert found["ratios"]["peak_memory"]["median"] == 0.5
    results = {"sides": runs, **found, "padding": {"ways": {"bucketed": {"update_s": [1.0]}}, "over_bucketed": {"padded_batch": {
        "median": 1.5, "min": 1.5, "max": 1.5}}}}  # fmt: skip
    assert "padded batch / bucketed, seconds of an update" in table(results)
    draw(results, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_sides_take_turns(tmp_path: Path) -> None:
    order: list[tuple[str, str]] = []

    def of(name: str) -> Any:
        return lambda folder: order.append((name, folder.name)) or side(1.0, 1, 1)

    in_turns({"a": of("a"), "b": of("b")}, 3, tmp_path)
    assert [name for name, _ in order] == ["a", "b", "b", "a", "a", "b"]
    assert len({folder for _, folder in order}) == 6


def test_padding_changes_the_lengths_and_nothing_that_counts() -> None:
    batch = padding.rows_of([3, 5, 2, 8], dataclasses.replace(JOB, max_prompt_tokens=8))
    for rows in (2, 4):
        made = padding.padded(batch, rows)
        for start in range(0, 4, rows):
            longest = batch.tokens.lengths[start : start + rows].max()
            assert (made.tokens.lengths[start : start + rows] == longest).all()
        assert made.response_mask.values.sum() == batch.response_mask.values.sum() == 3 + 5 + 2 + 8
        for before, after in zip(batch.tokens.rows(), made.tokens.rows(), strict=True):
            assert (after[: len(before)] == before).all()
            assert (after[len(before) :] == 0).all()
        assert made.advantages is not None
        assert batch.advantages is not None
        assert np.isclose(made.advantages.values.sum(), batch.advantages.values.sum())


def test_padded_rows_stay_in_their_micro_batches() -> None:
    """The engine sorts by length; rows padded to one length stay together, in order."""
    lengths = [6, 6, 9, 9, 4, 4]
    assert [rows.tolist() for rows in cut(lengths, Limits(tokens=2 * 9, rows=2))] == [
        [2, 3],
        [0, 1],
        [4, 5],
    ]


def test_memory_of_a_family() -> None:
    import os

    assert family_bytes(os.getpid()) > 50 * 2**20
    assert family_bytes(2**30) == 0

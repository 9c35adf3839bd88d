"""The same with real engines: Ray, vLLM and FSDP on a tiny random model, one process each, on
CPU."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.faults.test_resume import assert_same
from tests.slow.trainer.test_main_job import finish_in_background, shared_memory
from tests.trainer.job import Job, descendants, still_running, wait_for

pytestmark = pytest.mark.alone

GRPO = {"algorithm__adv_estimator": "grpo", "actor_rollout_ref__actor__ppo_mini_batch_size": 2}
RUNS = {
    "grpo": GRPO,
    "critic": {
        "algorithm__adv_estimator": "gae",
        "critic__ppo_mini_batch_size": 2,
        "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
    },
}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Job:
    return Job(
        folder=tmp_path_factory.mktemp("resume"), policy=tiny_llama, scalar=tiny_llama
    ).prepare()


@pytest.mark.parametrize("name", RUNS)
def test_two_steps_resumed_for_two_more_are_four_bit_by_bit(job: Job, name: str) -> None:
    settings = {**RUNS[name], "trainer__logger": "[jsonl]"}
    for out, steps in ((f"{name}-whole", 4), (f"{name}-halves", 2), (f"{name}-halves", 4)):
        code, printed = job.run(out, trainer__total_training_steps=steps, **settings)
        assert code == 0, printed[-3000:]
    assert "resuming from" in printed
    assert_same(job.folder / f"{name}-halves", job.folder / f"{name}-whole", step=4)
    assert (job.folder / f"{name}-whole" / "checkpoints" / "step_000004" / "critic").is_dir() == (
        name == "critic"
    )


def test_sigterm_finishes_the_step_saves_and_exits_with_130(job: Job) -> None:
    """As a cluster's scheduler stops a job: to the one process it started."""
    before = shared_memory()
    started = job.start(
        "terminated", trainer__total_training_steps=500, trainer__logger="[jsonl]", **GRPO
    )
    ended = finish_in_background(started)
    wait_for(lambda: job.lines("terminated") or started.poll() is not None, what="step 1")
    family = descendants(started.pid)
    os.kill(started.pid, signal.SIGTERM)
    code, printed = ended()
    assert code == 130, printed[-3000:]
    assert "the same command goes on from there" in printed
    assert "Traceback" not in printed
    step = job.lines("terminated")[-1]["step"]
    assert (
        job.folder / "terminated" / "checkpoints" / f"step_{step:06d}" / "manifest.json"
    ).is_file()
    assert still_running(family) == []
    assert {name for name in shared_memory() - before if name.startswith("rmrl")} == set()


def test_a_second_run_over_the_first_ones_output_is_refused_before_anything_starts(
    job: Job,
) -> None:
    settings = {**GRPO, "trainer__total_training_steps": 1, "trainer__logger": "[jsonl]"}
    code, printed = job.run("mine", **settings)
    assert code == 0, printed[-3000:]
    files = {
        path: path.read_bytes()
        for path in (job.folder / "mine").rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    code, printed = job.run("mine", **settings, data__seed=7)
    assert code == 2
    assert "with another configuration" in printed
    assert "data.seed: " in printed
    assert files == {
        path: path.read_bytes()
        for path in (job.folder / "mine").rglob("*")
        if path.is_file() and path.name != ".lock"
    }

"""A run that was stopped, or whose cluster was killed, goes on as if nothing had happened to it: with
real engines (Ray, vLLM and FSDP on a tiny random model, one process each, on CPU)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.faults.test_resume import assert_same_checkpoint, records, without_clocks
from tests.trainer.exports import greedy_is_that_of_the_export
from tests.trainer.job import (
    LIMIT_S,
    Job,
    daemon,
    descendants,
    finish_in_background,
    left_in_shared_memory,
    shared_memory,
    still_running,
    wait_for,
)

pytestmark = [pytest.mark.alone(forks=True), pytest.mark.timeout(900)]

SETTINGS = {
    "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
    "reward__rule_timeout_s": 2 * LIMIT_S,
    "trainer__logger": "[jsonl]",
}
GRPO = {**SETTINGS, "algorithm__adv_estimator": "grpo", "trainer__save_freq": -1}
CRITIC = {
    **SETTINGS,
    "algorithm__adv_estimator": "gae",
    "critic__ppo_mini_batch_size": 2,
    "actor_rollout_ref__rollout__name": "hf",
}
STEPS = 12
RAYS_PATIENCE_S = 400
"""After that long Ray would end the driver by itself, with code 1 and no sentence."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Job:
    return Job(
        folder=tmp_path_factory.mktemp("resume"), policy=tiny_llama, scalar=tiny_llama
    ).prepare()


@pytest.fixture(scope="module")
def whole(job: Job) -> str:
    """The folder of twelve GRPO steps that nothing happens to, with a checkpoint of each and a
    validation after the last."""
    every_step = {
        **GRPO,
        "trainer__save_freq": 1,
        "data__val_files": job.folder / "train.parquet",
        "trainer__val_before_train": False,
        "trainer__test_freq": STEPS,
    }
    code, printed = job.run("whole", trainer__total_training_steps=STEPS, **every_step)
    assert code == 0, printed[-3000:]
    return "whole"


def test_greedy_samples_of_the_last_weights_are_those_of_the_export(job: Job, whole: str) -> None:
    assert [line["step"] for line in job.lines(whole)] == list(range(1, STEPS + 1))
    greedy_is_that_of_the_export(job, whole, step=STEPS)


def test_control_c_finishes_the_step_saves_and_goes_on_bit_by_bit(job: Job, whole: str) -> None:
    before, out = shared_memory(), "interrupted"
    log = job.folder / out / "run.log"
    with job.held(out, after=2) as held:
        started = job.start(out, trainer__total_training_steps=500, **GRPO)
        ended = finish_in_background(started)
        wait_for(lambda: held.exists() or started.poll() is not None, what="step 3")
        family = descendants(started.pid)
        os.killpg(started.pid, signal.SIGINT)  # as a terminal does: to the whole group
        wait_for(
            lambda: "press Ctrl-C again" in log.read_text() or started.poll() is not None,
            what="the answer",
        )
    code, printed = ended()
    assert code == 130, printed[-3000:]
    assert "the same command goes on from there" in printed
    assert "Traceback" not in printed
    assert [line["step"] for line in job.lines(out)] == [1, 2, 3]
    assert (job.folder / out / "checkpoints" / "step_000003").is_dir()
    text = log.read_text()
    assert "INFO     rmrl.commands.command: checking the configuration" in text
    assert "INFO     rmrl.trainer.run: stopping after a checkpoint of this step" in text
    assert "stopped at step 3 of" in text.splitlines()[-1]
    assert still_running(family) == []
    assert left_in_shared_memory(before) == set()
    two_more_steps_are_those_of_the_whole(job, out, whole)


def two_more_steps_are_those_of_the_whole(job: Job, out: str, whole: str) -> None:
    """What the same command does after a cut, and all that was before it, bit by bit."""
    steps = job.lines(out)[-1]["step"] + 2
    code, printed = job.run(out, trainer__total_training_steps=steps, **GRPO)
    assert code == 0, printed[-3000:]
    assert "resuming from" in printed
    same_steps(job.folder / out, job.folder / whole, range(1, steps + 1))


def same_steps(cut: Path, whole: Path, steps: range) -> None:
    """All metrics that a run logged, without clocks, and all its samples are those of another one in
    these steps, and so is every bit of its last checkpoint."""
    for file in ("metrics.jsonl", "samples.jsonl"):
        lines = records(cut / file)
        assert lines[0]["step"] == steps[0]
        assert lines[-1]["step"] == steps[-1]
        same = [line for line in records(whole / file) if line["step"] in steps]
        if file == "metrics.jsonl":
            lines = without_clocks(lines)
            same = without_clocks(same)
        assert lines == same
    assert_same_checkpoint(cut, whole, step=steps[-1])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("gcs_server", "the head process of the Ray cluster"),
        pytest.param("raylet", "Ray's node process", marks=pytest.mark.nightly),
    ],
)
def test_a_killed_cluster_is_code_4_with_a_checkpoint_and_a_sentence(
    job: Job, whole: str, name: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", str(RAYS_PATIENCE_S))
    before, out = shared_memory(), f"killed-{name}"
    # However late the kill comes, the whole run has two steps more.
    with job.held(out, after=STEPS - 4):
        started = job.start(out, trainer__total_training_steps=500, **GRPO)
        ended = finish_in_background(started)
        wait_for(lambda: len(job.lines(out)) >= 2 or started.poll() is not None, what="step 2")
        family = descendants(started.pid)
        daemon(started, name).kill()
        killed = time.monotonic()
        code, printed = ended()
    assert code == 4, printed[-3000:]
    assert time.monotonic() - killed < RAYS_PATIENCE_S / 2
    assert f"ClusterLostError: {sentence}" in printed
    assert "Traceback" not in printed
    assert "core_worker" not in printed
    assert "Raylet is terminated" not in printed
    assert still_running(family) == []
    assert left_in_shared_memory(before) == set()
    step = job.lines(out)[-1]["step"]
    saved = job.folder / out / "checkpoints" / f"step_{step:06d}"
    assert (saved / "manifest.json").is_file()
    assert f"the last checkpoint is {saved}, and the same command goes on from it" in printed
    two_more_steps_are_those_of_the_whole(job, out, whole)


def test_a_critic_goes_on_from_step_2_to_the_same_step_4_bit_by_bit(job: Job) -> None:
    checkpoints = job.folder / "critic" / "checkpoints"
    resume = {
        "trainer__resume_mode": "resume_path",
        "trainer__resume_from_path": checkpoints / "step_000002",
    }
    for out, more in (("critic", {"trainer__save_freq": 1}), ("critic-resumed", resume)):
        code, printed = job.run(out, trainer__total_training_steps=4, **{**CRITIC, **more})
        assert code == 0, printed[-3000:]
    assert "resuming from" in printed
    assert (checkpoints / "step_000004" / "critic").is_dir()
    same_steps(job.folder / "critic-resumed", job.folder / "critic", range(3, 5))


def test_sigterm_finishes_the_step_saves_and_exits_with_130(job: Job) -> None:
    """As a cluster's scheduler stops a job: to the one process it started."""
    before = shared_memory()
    started = job.start(
        "terminated",
        trainer__total_training_steps=500,
        actor_rollout_ref__rollout__name="hf",
        **GRPO,
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
    assert left_in_shared_memory(before, of="rmrl") == set()

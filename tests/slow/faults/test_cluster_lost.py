"""Ray's own processes are killed in the middle of a real run: it ends with code 4, a checkpoint and
a sentence, and leaves nothing."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil
import pyarrow.parquet as parquet
import pytest

from tests.faults.test_resume import assert_same
from tests.slow.test_main_score import fake_judge, start
from tests.slow.trainer.test_main_job import finish_in_background, shared_memory
from tests.test_main_score import write_files
from tests.trainer.job import Job, descendants, still_running, wait_for

pytestmark = [pytest.mark.alone, pytest.mark.timeout(900)]

GRPO = {
    "algorithm__adv_estimator": "grpo",
    "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
    "trainer__logger": "[jsonl]",
    "trainer__save_freq": -1,
}
ENDS_WITHIN_S = 40.0


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Job:
    return Job(
        folder=tmp_path_factory.mktemp("lost"), policy=tiny_llama, scalar=tiny_llama
    ).prepare()


def daemon(job: subprocess.Popen[str], name: str) -> psutil.Process:
    """Ray's process of that program, below the job."""
    programs = {}
    for process in descendants(job.pid):
        command = process.cmdline()
        programs[Path(command[0]).name if command else ""] = process
    return programs[name]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("gcs_server", "the head process of the Ray cluster"), ("raylet", "Ray's node process")],
)
def test_a_killed_cluster_is_code_4_with_a_checkpoint_and_a_sentence(
    job: Job, name: str, sentence: str
) -> None:
    before, out = shared_memory(), f"killed-{name}"
    started = job.start(out, trainer__total_training_steps=500, **GRPO)
    ended = finish_in_background(started)
    wait_for(lambda: len(job.lines(out)) >= 2 or started.poll() is not None, what="step 2")
    family = descendants(started.pid)
    daemon(started, name).kill()
    killed = time.monotonic()
    code, printed = ended()
    assert code == 4, printed[-3000:]
    assert time.monotonic() - killed < ENDS_WITHIN_S
    assert f"ClusterLostError: {sentence}" in printed
    assert "Traceback" not in printed
    assert "core_worker" not in printed
    assert "Raylet is terminated" not in printed
    assert still_running(family) == []
    assert shared_memory() - before == set()
    step = job.lines(out)[-1]["step"]
    saved = job.folder / out / "checkpoints" / f"step_{step:06d}"
    assert (saved / "manifest.json").is_file()
    assert f"the last checkpoint is {saved}, and the same command goes on from it" in printed
    goes_on_with_the_same_numbers(job, out, step + 2)


@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_offline_scoring_keeps_what_is_scored_and_ends_with_code_4(
    tmp_path: Path, name: str
) -> None:
    write_files(tmp_path)
    started = start(tmp_path, {**fake_judge(tmp_path, delay_s=5.0), "out": "{tmp}/lost.jsonl"})
    wait_for(lambda: rows_on_disk(tmp_path) or started.poll() is not None, what="the first row")
    family = descendants(started.pid)
    daemon(started, name).kill()
    printed, _ = started.communicate(timeout=120)
    assert started.returncode == 4, printed[-3000:]
    assert "ClusterLostError" in printed
    assert "rows scored until then stay on disk" in printed
    assert "Traceback" not in printed
    assert 1 <= rows_on_disk(tmp_path) < 4
    assert still_running(family) == []


def rows_on_disk(folder: Path) -> int:
    """Of the parts that are closed."""
    return sum(parquet.read_metadata(path).num_rows for path in folder.rglob("part-*.parquet"))


def goes_on_with_the_same_numbers(job: Job, out: str, steps: int) -> None:
    """Two more steps after the loss are those of a run that nothing happened to."""
    for folder in (out, f"{out}-whole"):
        code, printed = job.run(folder, trainer__total_training_steps=steps, **GRPO)
        assert code == 0, printed[-3000:]
        assert ("resuming from" in printed) == (folder == out)
    assert_same(job.folder / out, job.folder / f"{out}-whole", step=steps)

"""`python -m rmrl.main_ppo` as a user runs it: real Ray, vLLM and FSDP on tiny random models; every
ending leaves nothing behind."""

from __future__ import annotations

import math
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.trainer.job import (
    LIMIT_S,
    Job,
    descendants,
    finish_in_background,
    left_in_shared_memory,
    shared_memory,
    still_running,
    three_rewards,
    wait_for,
)

pytestmark = pytest.mark.alone

LONG_RUN = {
    "trainer__total_training_steps": 500,
    "trainer__logger": "[jsonl]",
    "trainer__rollout_samples_per_step": 0,
}


def run_watched(job: subprocess.Popen[str]) -> tuple[int, str, list[psutil.Process]]:
    """Exit code, output, and every process that was seen below the job."""
    seen: set[psutil.Process] = set()

    def ended() -> bool:
        seen.update(descendants(job.pid))
        return job.poll() is not None

    with_output = finish_in_background(job)
    wait_for(ended, what="the job's end")
    code, printed = with_output()
    return code, printed, list(seen)


@pytest.fixture(scope="module")
def three(
    tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path, tiny_reward_llama: Path
) -> dict[str, Any]:
    """Three GRPO steps on two training processes with a rule, a judge and a scalar model."""
    job = Job(
        folder=tmp_path_factory.mktemp("three"),
        policy=tiny_llama,
        scalar=tiny_reward_llama,
        overrides={**three_rewards(tiny_llama, tiny_reward_llama), "trainer.n_gpus_per_node": 2},
    ).prepare()
    before = shared_memory()
    code, printed, seen = run_watched(job.start("run"))
    return {
        "job": job,
        "code": code,
        "printed": printed,
        "seen": seen,
        "shm": left_in_shared_memory(before),
    }


def test_it_ends_well_and_leaves_no_process_and_no_shared_memory(three: dict[str, Any]) -> None:
    assert three["code"] == 0, three["printed"][-3000:]
    assert len(three["seen"]) > 5
    assert still_running(three["seen"]) == []
    assert three["shm"] == set()


def test_every_number_is_there(three: dict[str, Any]) -> None:
    lines = three["job"].lines("run")
    assert [line["step"] for line in lines] == [1, 2, 3]
    wanted = [f"score/{name}/mean" for name in ("letters", "judge", "quality")]
    wanted += [
        f"time/{stage}_s"
        for stage in ("generate", "score", "logprobs", "update", "publish", "step")
    ]
    wanted += [
        "policy/loss",
        "policy/kl",
        "policy/entropy",
        "policy/grad_norm",
        "policy/lr",
        "policy/rollout_logprob_diff",
    ]
    wanted += ["reward/mean", "response/length_mean", "perf/tokens_per_s"]
    for line in lines:
        assert [
            key
            for key in wanted
            if not isinstance(line.get(key), float) or not math.isfinite(line[key])
        ] == []
        # float32 in both engines: what is left is the order of sums
        assert 0 < line["policy/rollout_logprob_diff"] < 1e-3
        parts = (
            1.0 * line["score/letters/mean"]
            + 0.5 * line["score/judge/mean"]
            + 0.25 * line["score/quality/mean"]
        )
        assert line["reward/mean"] == pytest.approx(parts, rel=1e-6)


def test_every_sample_is_there_with_what_each_judge_read_and_wrote(three: dict[str, Any]) -> None:
    samples = three["job"].lines("run", "samples.jsonl")
    assert len(samples) == 3 * 4 * 4
    for row in samples:
        assert row["policy_version"] == row["step"] - 1
        assert set(row["scores"]) == {"letters", "judge", "quality"}
        assert all(verdict["status"] == "ok" for verdict in row["scores"].values())
        assert row["scores"]["judge"]["rendered"]
        assert row["scores"]["judge"]["score"] == pytest.approx(
            len(row["scores"]["judge"]["raw"]) / 10
        )
        assert row["scores"]["letters"]["extra"] == {"length": len(row["response"])}
        assert row["advantage"] is not None


def test_curves_events_and_a_checkpoint_that_transformers_loads(three: dict[str, Any]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = three["job"].folder / "run"
    assert (out / "curves.png").stat().st_size > 1000
    assert list(out.rglob("events.out.tfevents.*"))
    hf = out / "checkpoints" / "step_000003" / "hf"
    assert AutoModelForCausalLM.from_pretrained(hf).config.hidden_size == 128
    assert len(AutoTokenizer.from_pretrained(hf)("abc")["input_ids"]) == 3


@pytest.mark.alone(forks=True)
def test_the_same_command_with_more_steps_goes_on(three: dict[str, Any]) -> None:
    job: Job = three["job"]
    # One process instead of two: a checkpoint is not bound to the number of processes.
    code, printed = job.run("run", trainer__total_training_steps=4, trainer__n_gpus_per_node=1)
    assert code == 0, printed[-3000:]
    assert "resuming from" in printed
    assert [line["step"] for line in job.lines("run")] == [1, 2, 3, 4]


def test_another_run_over_the_same_output_is_refused_before_anything_starts(
    three: dict[str, Any],
) -> None:
    job: Job = three["job"]

    def contents() -> dict[Path, bytes]:
        files = [path for path in (job.folder / "run").rglob("*") if path.is_file()]
        return {path: path.read_bytes() for path in files if path.name != ".lock"}

    before = contents()
    code, printed = job.run("run", data__seed=7)
    assert code == 2
    assert "with another configuration" in printed
    assert "data.seed: " in printed
    assert contents() == before


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Job:
    """A job with a rule only, one training process."""
    return Job(
        folder=tmp_path_factory.mktemp("plain"), policy=tiny_llama, scalar=tiny_llama
    ).prepare()


def engine_processes(job: subprocess.Popen[str], kind: str) -> list[psutil.Process]:
    """Processes of one kind below the job: rollout, reward or training."""
    found = []
    for process in descendants(job.pid):
        try:
            title, environment, size = (
                " ".join(process.cmdline()),
                process.environ(),
                process.memory_info().rss,
            )
        except psutil.Error:
            continue
        if title.startswith("ray::AsyncProcess"):
            is_kind = "rollout"
        elif title.startswith("ray::SyncProcess"):
            is_kind = "reward" if "VLLM_ENABLE_V1_MULTIPROCESSING" in environment else "training"
        else:
            continue
        if is_kind == kind:
            found.append((size, process))
    return [
        process for _, process in sorted(found, key=lambda pair: -pair[0])
    ]  # largest first: a rank's anchor is small


def stopped_after_more_steps(
    job: subprocess.Popen[str], plain: Job, out: str, *, said: str
) -> list[dict[str, Any]]:
    """The metrics of a run that was stopped three steps after it had said something."""
    log = plain.folder / out / "run.log"
    wait_for(lambda: said in log.read_text() or job.poll() is not None, what=said)
    steps = len(plain.lines(out)) + 3
    wait_for(lambda: len(plain.lines(out)) >= steps or job.poll() is not None, what=f"step {steps}")
    job.send_signal(signal.SIGINT)
    wait_for(lambda: job.poll() is not None, what="the job's end")
    lines = plain.lines(out)
    assert len(lines) >= steps
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    return lines


@pytest.mark.alone(forks=True)
def test_a_killed_training_process_is_a_typed_error_and_nothing_is_left(plain: Job) -> None:
    before, out = shared_memory(), "killed-training"
    job = plain.start(out, **LONG_RUN)
    ended = finish_in_background(job)
    wait_for(lambda: len(plain.lines(out)) >= 2 or job.poll() is not None, what="step 2")
    family = descendants(job.pid)
    engine_processes(job, "training")[0].kill()
    code, printed = ended()
    assert code == 4, printed[-3000:]
    assert "EngineLostError: the process of" in printed
    assert "Traceback" not in printed
    assert still_running(family) == []
    assert left_in_shared_memory(before) == set()


@pytest.mark.alone(forks=True)
def test_a_killed_rollout_engine_is_started_again_with_the_weights_of_its_step(plain: Job) -> None:
    before, out = shared_memory(), "rollout-killed"
    job = plain.start(out, **LONG_RUN)
    ended = finish_in_background(job)
    wait_for(lambda: len(plain.lines(out)) >= 2 or job.poll() is not None, what="step 2")
    engine_processes(job, "rollout")[0].kill()
    lines = stopped_after_more_steps(job, plain, out, said="starting rollout engine 0 again")
    code, printed = ended()
    assert code == 130, printed[-3000:]
    assert "died" in printed
    assert sum(line.get("rollout/restarts", 0) for line in lines) == 1
    # With the weights of another step its log-probabilities would differ from training's.
    assert all(line["policy/rollout_logprob_diff"] < 1e-3 for line in lines)
    assert left_in_shared_memory(before) == set()


@pytest.mark.alone(forks=True)
def test_a_second_control_c_ends_at_once_and_leaves_nothing(plain: Job) -> None:
    before = shared_memory()
    changed = {
        **LONG_RUN,
        "data__max_response_length": 200,
        "actor_rollout_ref__rollout__name": "hf",
        "actor_rollout_ref__rollout__ignore_eos": True,
        "reward__rule_timeout_s": 2 * LIMIT_S,
    }
    log = plain.folder / "stopped" / "run.log"
    with plain.held("stopped", after=1) as held:
        job = plain.start("stopped", **changed)
        ended = finish_in_background(job)
        wait_for(lambda: held.exists() or job.poll() is not None, what="a step that cannot end")
        family = descendants(job.pid)
        os.killpg(job.pid, signal.SIGINT)
        wait_for(
            lambda: "press Ctrl-C again" in log.read_text() or job.poll() is not None,
            what="the answer to the first",
        )
        os.killpg(job.pid, signal.SIGINT)
        code, printed = ended()
    assert code == 130, printed[-3000:]
    assert "press Ctrl-C again" in printed
    assert "[rmrl] interrupted" in printed
    assert not (plain.folder / "stopped" / "checkpoints").exists()
    assert still_running(family) == []
    assert left_in_shared_memory(before) == set()


@pytest.mark.alone(forks=True)
def test_a_killed_reward_engine_is_started_again_and_the_run_goes_on(
    plain: Job, tiny_llama: Path
) -> None:
    out = "judge-killed"
    changed = {
        **LONG_RUN,
        "actor_rollout_ref__rollout__name": "hf",
        "reward__models": "[letters,judge]",
        "reward__specs__judge__path": tiny_llama,
    }
    job = plain.start(out, **changed)
    ended = finish_in_background(job)
    wait_for(lambda: len(plain.lines(out)) >= 2 or job.poll() is not None, what="step 2")
    engine_processes(job, "reward")[0].kill()
    lines = stopped_after_more_steps(job, plain, out, said="starting it again")
    code, printed = ended()
    assert code == 130, printed[-3000:]
    assert all(line["score/judge/missing"] == 0 for line in lines)

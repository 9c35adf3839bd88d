"""The whole loop on fakes: numbers do not move, a resumed run is the run, endings are clean.

tests/golden/ guards refactors: the metrics of 20 steps of each of GOLDEN_RUNS. After a change that
is meant to move numbers, look at what moved and write the file anew with

    RMRL_WRITE_GOLDEN=1 python -m pytest tests/trainer/test_loop.py -k golden
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from rmrl.backends.memory import PhaseMemory
from rmrl.cluster.worker_group import WorkerGroup
from rmrl.errors import CheckpointError, EngineLostError, Interrupted
from rmrl.signals import stopping_after_step
from rmrl.telemetry import jsonl
from rmrl.telemetry.sinks import Sinks
from rmrl.trainer import checkpoint
from rmrl.trainer.checkpoint import newest_complete
from rmrl.trainer.loop import train
from rmrl.trainer.policy import Models, TrainedModel, TrainGroup
from rmrl.trainer.run import Run
from rmrl.trainer.throughput import Throughput
from tests.patience import PATIENCE_S
from tests.support.fake_processes import FakeProcess
from tests.trainer.fake_run import (
    NOTHING,
    FakeParts,
    dying,
    fake_run,
    records,
    rollout_engine,
    small_config,
    train_and_close,
    train_worker,
    without_clocks,
)

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
# KL in reward, several updates a step, an adaptive controller, dropped rows: as many code paths as
# one run can take.
GOLDEN_SETTINGS: dict[str, Any] = {
    "algorithm__use_kl_in_reward": True,
    "algorithm__kl_ctrl__type": "adaptive",
    "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
    "actor_rollout_ref__actor__ppo_epochs": 2,
    "actor_rollout_ref__actor__shuffle": True,
}
PPO_SETTINGS: dict[str, Any] = {
    "algorithm__adv_estimator": "gae",
    "algorithm__lam": 0.9,
    "trainer__critic_warmup": 2,
    "critic__ppo_epochs": 2,
    "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
}
GOLDEN_RUNS = {"fake_20_steps": GOLDEN_SETTINGS, "fake_20_steps_ppo": PPO_SETTINGS}
SOME_MISSING = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    tokens = [int(word) for word in solution_str.split()]
    return None if tokens[0] % 5 == 0 else sum(token % 2 for token in tokens) / len(tokens)
"""


def go(folder: Path, steps: int, parts: FakeParts | None = None, **changed: Any) -> Path:
    """Trains to `steps` and returns the output folder."""
    run = fake_run(folder, total_steps=steps, parts=parts, **changed)
    asyncio.run(train_and_close(run))
    return run.out_dir


@pytest.mark.parametrize("name", GOLDEN_RUNS)
def test_golden_20_steps(tmp_path: Path, name: str) -> None:
    file = GOLDEN / f"{name}.json"
    out = go(tmp_path, 20, code=SOME_MISSING, **GOLDEN_RUNS[name])
    got = without_clocks(records(out / "metrics.jsonl"))
    if os.environ.get("RMRL_WRITE_GOLDEN"):
        file.write_text("[\n" + ",\n".join(json.dumps(line) for line in got) + "\n]\n")
    wanted = json.loads(file.read_text())
    assert [line["step"] for line in got] == list(range(1, 21))
    for ours, golden in zip(got, wanted, strict=True):
        # The last bits of a float32 sum depend on the processor's vector width: means near 0
        # were seen to differ by 2.5e-7 (AVX2 beside AVX-512). Any change of meaning is far larger.
        assert ours == pytest.approx(golden, rel=1e-5, abs=1e-6), f"step {golden['step']}"


def test_a_finished_run_started_again_does_nothing(tmp_path: Path) -> None:
    out = go(tmp_path, 3)
    before = (out / "metrics.jsonl").read_bytes()
    parts = FakeParts()
    go(tmp_path, 3, parts=parts)
    assert (out / "metrics.jsonl").read_bytes() == before
    assert "actor.update" not in parts.workers[0].calls
    assert [p.name for p in (out / "checkpoints").iterdir()] == ["step_000003"]


def test_stops_at_total_steps_and_saves_when_asked(tmp_path: Path) -> None:
    parts = FakeParts()
    out = go(tmp_path, 5, parts=parts, trainer__save_freq=2, trainer__max_actor_ckpt_to_keep=2)
    assert [line["step"] for line in records(out / "metrics.jsonl")] == [1, 2, 3, 4, 5]
    assert parts.workers[0].calls.count("actor.update") == 5
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == [
        "step_000004",
        "step_000005",
    ]  # 2 went, 5 is the last
    # 16 prompts in batches of 4: step 5 is the second epoch's first
    assert [line["train/epoch"] for line in records(out / "metrics.jsonl")] == [0, 0, 0, 0, 1]
    # 4 prompts x 4 responses a step, each of the version published before it
    assert [row["policy_version"] for row in records(out / "samples.jsonl")] == [
        v for v in range(5) for _ in range(16)
    ]


@pytest.mark.parametrize(("every", "steps"), [(2, [1, 2, 4]), (0, [])])
def test_a_sample_is_displayed_in_the_first_step_and_at_every_multiple(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int, steps: list[int]
) -> None:
    displayed: list[int] = []
    monkeypatch.setattr(Sinks, "text", lambda _, step, text: displayed.append(step))
    go(tmp_path, 4, trainer__log_sample_freq=every)
    assert displayed == steps


def test_a_checkpoint_comes_after_the_samples_of_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that resumes from it lacks none of them, however it was ended."""
    append = jsonl.append

    def slow(file: Any, lines: Any) -> None:
        if "samples" in file.name:
            time.sleep(0.05)
        append(file, lines)

    at_checkpoints: list[set[int]] = []

    def written(*_: object) -> None:
        lines = records(tmp_path / "run" / "samples.jsonl")
        at_checkpoints.append({line["step"] for line in lines})

    monkeypatch.setattr(jsonl, "append", slow)
    monkeypatch.setattr(checkpoint, "prune", written)
    asyncio.run(train_and_close(fake_run(tmp_path, total_steps=3, trainer__save_freq=1)))
    assert at_checkpoints == [{1}, {1, 2}, {1, 2, 3}]


def test_a_checkpoint_is_known_by_its_configuration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = go(tmp_path, 1)
    saved = newest_complete(out / "checkpoints")
    assert saved is not None
    assert saved.config_fingerprint == "fake"
    go(tmp_path, 2)
    assert not any("another configuration" in message for message in caplog.messages)


def test_a_run_describes_its_last_checkpoint(tmp_path: Path) -> None:
    run = fake_run(tmp_path, total_steps=1)
    assert run.saves.last().startswith("there is no checkpoint")
    asyncio.run(train_and_close(run))
    assert run.saves.last().endswith("step_000001, and the same command goes on from it")


def test_the_end_of_a_run_closes_trackers_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Sinks] = []
    monkeypatch.setattr(Sinks, "close", lambda sinks: closed.append(sinks))
    run = fake_run(tmp_path, total_steps=1)
    asyncio.run(train_and_close(run))
    assert run.telemetry is not None
    assert closed == [run.telemetry.sinks]


def test_weights_are_published_before_the_first_step_and_after_each(tmp_path: Path) -> None:
    engine = rollout_engine()
    go(tmp_path, 2, parts=FakeParts(engines=[engine]))
    published = engine.calls.count("load_weights")
    assert published == 3
    first_step = [
        "sleep",
        "load_weights",
        "wake",
        "generate",
        "sleep",
        "load_weights",
    ]  # just started, it makes room for the first publish
    assert [call for call in engine.calls if call != "resident_bytes"][:6] == first_step


def moves(folder: Path, *, steps: int = 3, **changed: Any) -> list[str]:
    """Calls of the training process in the second step, with offloading."""
    parts = FakeParts()
    run = fake_run(folder, total_steps=steps, parts=parts, **changed)
    group = run.models.actor.group
    group._offloads = True
    first: list[int] = []
    record = Run.record

    def recorded(self: Run, *arguments: Any) -> None:
        first.append(len(parts.workers[0].calls))
        record(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "record", recorded)
        asyncio.run(train_and_close(run))
    return parts.workers[0].calls[first[0] : first[1]]


def test_a_step_moves_the_training_state_once(tmp_path: Path) -> None:
    assert moves(tmp_path, actor_rollout_ref__actor__ppo_epochs=2) == [
        "onload",
        "actor.logprobs",
        "actor.update",
        "actor.export_weights",
        "offload",
    ]


def test_a_checkpoint_is_written_before_the_state_leaves_the_devices(tmp_path: Path) -> None:
    assert moves(tmp_path, steps=2) == [
        "onload",
        "actor.update",
        "actor.save",
        "actor.save_hf",
        "actor.export_weights",
        "offload",
    ]


def test_a_batch_sampled_ahead_may_be_scored_between_the_stages(tmp_path: Path) -> None:
    """Its reward models live on the policy's devices, so training leaves them in between."""
    calls = moves(tmp_path, trainer__max_staleness=1, actor_rollout_ref__actor__ppo_epochs=2)
    assert calls == [
        *("onload", "actor.logprobs", "offload"),
        *("onload", "actor.update", "offload"),
        *("onload", "actor.export_weights", "offload"),
    ]


def test_metrics_of_speed_and_memory(tmp_path: Path) -> None:
    run = fake_run(tmp_path, total_steps=2)
    run.measures.throughput = Throughput(
        generate_devices=2, update_devices=4, update_operations=6.0
    )
    run.models.actor.group._offloads = True
    asyncio.run(train_and_close(run))
    for line in records(run.out_dir / "metrics.jsonl"):
        tokens = 16 * line["response/length_mean"]
        rate = line["perf/generate/tokens_per_s_per_device"]
        assert rate == pytest.approx(tokens / line["time/generate_s"] / 2, rel=0.05)
        assert line["perf/update/tokens_per_s_per_device"] > 0
        assert "perf/update/mfu" not in line  # not known for a CPU
        for name in ("rollout/sleep", "rollout/wake", "train/onload", "train/offload"):
            assert line[f"perf/{name}_s"] >= 0
        assert line["perf/publish/export_s"] > 0
        for phase in ("logprobs", "update", "publish"):
            assert line[f"memory/{phase}/resident_bytes"] > 10 * 2**20


def test_peaks_of_a_phase_are_those_of_the_process_with_most(tmp_path: Path) -> None:
    workers = [train_worker(small_config(tmp_path), rank=rank) for rank in range(2)]
    for number, worker in enumerate(workers):
        peaks = {"peak_bytes": 10 + number, "reserved_bytes": 30 - number}
        worker.object.phase_memory = lambda peaks=peaks: PhaseMemory("NVIDIA H200", peaks)
    group = TrainGroup(WorkerGroup(workers), timeout_s=PATIENCE_S, offloads=False)  # type: ignore[arg-type]
    models = Models(TrainedModel(group, "actor"))
    assert asyncio.run(models.phase_memory("update")) == {
        "memory/update/peak_bytes": 11.0,
        "memory/update/reserved_bytes": 30.0,
    }
    assert models.device_name == "NVIDIA H200"


def test_steps_to_profile_leave_a_trace_of_each_process(tmp_path: Path) -> None:
    parts = FakeParts()
    run = fake_run(tmp_path, total_steps=3, parts=parts, trainer__profile_steps=[2])
    asyncio.run(train_and_close(run))
    calls = parts.workers[0].calls
    assert calls.count("start_profile") == calls.count("write_profile") == 1
    assert calls.index("start_profile") < calls.index("write_profile")
    (file,) = (run.out_dir / "profile").iterdir()
    assert file.name == "step_000002-train-0.json"
    names = {event.get("name") for event in json.loads(file.read_text())["traceEvents"]}
    assert "aten::log_softmax" in names


def test_rollouts_sleep_while_training_has_the_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = FakeParts()
    run = fake_run(tmp_path, total_steps=2, parts=parts)
    engine = parts.engines[0].object
    states: list[str] = []
    call = TrainGroup.call

    async def seen(self: TrainGroup, method: str, *arguments: Any) -> Any:
        states.append(engine._state)
        return await call(self, method, *arguments)

    monkeypatch.setattr(TrainGroup, "call", seen)
    asyncio.run(train_and_close(run))
    # First weights, a step each, and the checkpoint at the end, which comes before its weights are
    # published.
    assert set(states) == {"asleep 2"}


def test_no_weight_file_is_left_behind(tmp_path: Path) -> None:
    go(tmp_path, 1)
    assert not list(Path("/dev/shm").glob(f"rmrl-weights-{os.getpid()}-*"))


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_run_whose_rollout_engine_dies_has_the_numbers_of_a_quiet_one(
    tmp_path: Path, ahead: int
) -> None:
    """Sampled one step ahead, the samples owed may come from newer weights than the others."""
    tmp_path.joinpath("quiet").mkdir()
    tmp_path.joinpath("lost").mkdir()
    expected = without_clocks(records(go(tmp_path / "quiet", 4) / "metrics.jsonl"))

    async def start(number: int) -> FakeProcess:
        # Later processes die too, in later steps. The first weights are those of two batches
        # where one is sampled ahead.
        return dying(replica=number, after=40 if ahead else 20)

    parts = FakeParts(engines=[dying(after=5)], start=start)
    out = go(tmp_path / "lost", 4, parts=parts, trainer__max_staleness=ahead)
    lines = without_clocks(records(out / "metrics.jsonl"))
    restarts = [line.pop("rollout/restarts", 0.0) for line in lines]
    assert sum(restarts) >= 2.0
    assert len(lines) == 4
    if ahead == 0:
        # 16 samples a step: 5 + 11, then 9 (20 of the second process) + 7, 13 + 3, 16.
        assert restarts == [1.0, 1.0, 1.0, 0.0]
        assert lines == expected


def test_an_interrupt_finishes_the_step_saves_and_says_how_to_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cut").mkdir()
    (tmp_path / "whole").mkdir()
    parts = FakeParts()
    run = fake_run(tmp_path / "cut", total_steps=6, parts=parts)

    async def interrupted() -> None:
        asyncio.get_running_loop().call_later(0.0, os.kill, os.getpid(), signal.SIGINT)
        try:
            with stopping_after_step(run):
                await train(run)
        finally:
            await run.close()

    with pytest.raises(Interrupted, match="of 6; the same command goes on from there"):
        asyncio.run(interrupted())
    assert any("press Ctrl-C again" in notice for notice in caplog.messages)
    assert run.saves.step == run.step < 6
    resumed = go(tmp_path / "cut", 6)
    whole = go(tmp_path / "whole", 6)
    assert without_clocks(records(resumed / "metrics.jsonl")) == without_clocks(
        records(whole / "metrics.jsonl")
    )


def test_an_interrupt_in_the_last_step_is_a_finished_run(tmp_path: Path) -> None:
    run = fake_run(tmp_path, total_steps=1)
    run.interrupted = True
    asyncio.run(train_and_close(run))
    assert run.saves.step == 1


def test_a_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    run = fake_run(tmp_path, total_steps=1)
    before = signal.getsignal(signal.SIGINT)
    with stopping_after_step(run):
        signal.raise_signal(signal.SIGINT)
        assert run.interrupted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    asyncio.run(run.close())


def test_resume_path_starts_from_that_checkpoint(tmp_path: Path) -> None:
    out = go(tmp_path, 4, trainer__save_freq=2)
    other = str(tmp_path / "other")
    parts = FakeParts()
    resumed = go(
        tmp_path,
        4,
        parts=parts,
        trainer__resume_mode="resume_path",
        trainer__resume_from_path=str(out / "checkpoints" / "step_000002"),
        trainer__default_local_dir=other,
    )
    assert [line["step"] for line in records(resumed / "metrics.jsonl")] == [3, 4]
    assert (
        without_clocks(records(resumed / "metrics.jsonl"))
        == without_clocks(records(out / "metrics.jsonl"))[2:]
    )


def test_resume_path_without_a_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no manifest\.json"):
        go(
            tmp_path,
            2,
            trainer__resume_mode="resume_path",
            trainer__resume_from_path=str(tmp_path / "nothing"),
        )


def test_disable_never_loads(tmp_path: Path) -> None:
    go(tmp_path, 2)
    parts = FakeParts()
    go(tmp_path, 3, parts=parts, trainer__resume_mode="disable")
    assert "actor.load" not in parts.workers[0].calls


def test_a_torn_checkpoint_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out = go(tmp_path, 4, trainer__save_freq=2)
    (out / "checkpoints" / "step_000004" / "trainer.json").write_text("{}")
    parts = FakeParts()
    go(tmp_path, 5, parts=parts)
    assert any("step_000002 (step 2 of 5)" in notice for notice in caplog.messages)
    assert [line["step"] for line in records(out / "metrics.jsonl")] == [1, 2, 3, 4, 5]


def test_other_data_than_the_checkpoints_is_refused(tmp_path: Path) -> None:
    go(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"data\.seed=1, this run has data\.seed=2"):
        go(tmp_path, 2, trainer__seed=2)


def test_a_step_in_which_no_row_has_a_reward_leaves_the_weights_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = FakeParts()
    out = go(tmp_path, 2, parts=parts, code=NOTHING)
    assert "actor.update" not in parts.workers[0].calls
    assert sum("no response has a reward" in notice for notice in caplog.messages) == 2
    lines = records(out / "metrics.jsonl")
    assert [line["reward/kept"] for line in lines] == [0.0, 0.0]
    assert [line["score/parity/missing"] for line in lines] == [1.0, 1.0]
    assert all("reward/mean" not in line and "policy/loss" not in line for line in lines)
    samples = records(out / "samples.jsonl")
    assert len(samples) == 32
    assert all(
        row["reward"] is None and row["advantage"] is None and not row["kept"] for row in samples
    )


def test_validation_before_during_and_at_the_end(tmp_path: Path) -> None:
    engine = rollout_engine()
    changed = {
        "data__val_files": str(tmp_path / "val.parquet"),
        "trainer__test_freq": 2,
        "data__val_batch_size": 4,
    }
    out = go(tmp_path, 3, parts=FakeParts(engines=[engine]), **changed)
    lines = records(out / "metrics.jsonl")
    assert [line["step"] for line in lines if "val/reward" in line] == [0, 2, 3]
    # 6 prompts, one greedy response each, in batches of 4 and 2, three times
    samples = records(out / "val_samples.jsonl")
    assert [row["step"] for row in samples] == [0] * 6 + [2] * 6 + [3] * 6
    assert engine.calls.count("generate") == 3 + 3 * 2
    last = [row["reward"] for row in samples[12:]]
    assert lines[-1]["val/reward"] == pytest.approx(sum(last) / 6)
    assert lines[-1]["val/numbers/parity"] == pytest.approx(sum(last[0::2]) / 3)


def test_val_only_validates_once_and_writes_no_checkpoint(tmp_path: Path) -> None:
    parts = FakeParts()
    out = go(
        tmp_path,
        3,
        parts=parts,
        data__val_files=str(tmp_path / "val.parquet"),
        trainer__val_only=True,
    )
    lines = records(out / "metrics.jsonl")
    assert [line["step"] for line in lines] == [0]
    assert "actor.update" not in parts.workers[0].calls
    assert not (out / "checkpoints").exists()


def test_val_only_measures_the_checkpoint_of_a_trained_run(tmp_path: Path) -> None:
    out = go(tmp_path, 2)
    go(tmp_path, 2, data__val_files=str(tmp_path / "val.parquet"), trainer__val_only=True)
    lines = records(out / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 2]
    assert "val/reward" in lines[-1]


@pytest.mark.parametrize("who", ["rollout", "training"])
def test_a_dead_process_ends_the_run_with_its_name_and_ends_the_others(
    tmp_path: Path, who: str
) -> None:
    parts = FakeParts()
    run = fake_run(tmp_path, total_steps=3, parts=parts)
    victim = parts.engines[0] if who == "rollout" else parts.workers[0]
    victim.dies_on = 4
    with pytest.raises(EngineLostError, match=victim.name):
        asyncio.run(train_and_close(run))
    assert all(process.object is None for process in (*parts.engines, *parts.workers))


def test_every_process_is_ended_even_if_ending_one_fails(tmp_path: Path) -> None:
    parts = FakeParts()
    run = fake_run(tmp_path, total_steps=1, parts=parts)

    async def fails() -> None:
        raise RuntimeError("no answer")

    run.collector.rollouts.close = fails  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="no answer"):
        asyncio.run(run.close())
    assert parts.workers[0].object is None

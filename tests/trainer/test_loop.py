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
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import CheckpointError, EngineLostError, Interrupted
from rmrl.telemetry.sinks import Sinks
from rmrl.trainer.checkpoint import newest_complete
from rmrl.trainer.loop import train
from tests.trainer.fake_run import (
    NOTHING,
    FakeParts,
    fake_run,
    records,
    rollout_engine,
    train_and_close,
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
        # The last bits of a float32 sum depend on the processor's vector width; any change of
        # meaning is far larger.
        assert ours == pytest.approx(golden, rel=1e-5, abs=1e-7), f"step {golden['step']}"


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
    assert run.last_checkpoint(tmp_path).startswith("there is no checkpoint")
    asyncio.run(train_and_close(run))
    assert run.last_checkpoint(tmp_path).startswith(f"the last checkpoint is {tmp_path}, and")


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


def test_no_weight_file_is_left_behind(tmp_path: Path) -> None:
    go(tmp_path, 1)
    assert not list(Path("/dev/shm").glob(f"rmrl-weights-{os.getpid()}-*"))


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
            with run.stopping_on_signal():
                await train(run)
        finally:
            await run.close()

    with pytest.raises(Interrupted, match="of 6; the same command goes on from there"):
        asyncio.run(interrupted())
    assert any("press Ctrl-C again" in notice for notice in caplog.messages)
    assert run.saved_step == run.step < 6
    resumed = go(tmp_path / "cut", 6)
    whole = go(tmp_path / "whole", 6)
    assert without_clocks(records(resumed / "metrics.jsonl")) == without_clocks(
        records(whole / "metrics.jsonl")
    )


def test_an_interrupt_in_the_last_step_is_a_finished_run(tmp_path: Path) -> None:
    run = fake_run(tmp_path, total_steps=1)
    run.interrupted = True
    asyncio.run(train_and_close(run))
    assert run.saved_step == 1


def test_a_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    run = fake_run(tmp_path, total_steps=1)
    before = signal.getsignal(signal.SIGINT)
    with run.stopping_on_signal():
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

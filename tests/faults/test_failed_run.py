"""A run that ends with an error saves its last finished step, and shows the responses that broke a
budget."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmrl.config.schema import Config
from rmrl.errors import EngineLostError, MissingVerdictsError, StallError
from rmrl.telemetry import jsonl
from rmrl.trainer import build_run as build
from rmrl.trainer.check_run import Checked
from tests.faults.test_resume import assert_same, go
from tests.trainer.fake_run import PARITY, FakeParts, fake_run, records, train_and_close

PER_STEP = 16


@pytest.fixture(autouse=True)
def _no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmrl.telemetry.curve.draw_curves", lambda *_: False)


def breaks_after(calls: int, counter: Path) -> str:
    """A rule that raises from its call number `calls` on; each call leaves a byte in a file."""
    signature, body = PARITY.strip().split("\n", 1)
    count = f"""
    with open({str(counter)!r}, "ab") as file:
        file.write(b".")
        number = file.tell()
    if number > {calls}:
        raise RuntimeError("the judge's server is gone")
"""
    return f"{signature}{count}{body}\n"


def failed(folder: Path, error: type[Exception], *, after_steps: int, **changed: Any) -> Path:
    """Train six steps with a rule that breaks after some; the output folder."""
    parts = FakeParts()
    code = breaks_after(after_steps * PER_STEP, folder / "calls")
    run = fake_run(
        folder,
        total_steps=6,
        parts=parts,
        code=code,
        reward__max_missing=0.2,
        trainer__save_freq=-1,
        **changed,
    )
    with pytest.raises(error):
        asyncio.run(train_and_close(run))
    return run.out_dir


def test_a_dead_judge_costs_no_finished_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cut").mkdir()
    (tmp_path / "whole").mkdir()
    out = failed(tmp_path / "cut", MissingVerdictsError, after_steps=2)
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step_000002"]
    assert any(
        "the last checkpoint is" in line and "step_000002" in line for line in caplog.messages
    )

    last = [row for row in records(out / "samples.jsonl") if row["step"] == 3]
    assert len(last) == PER_STEP
    assert {row["scores"]["parity"]["status"] for row in last} == {"user_error"}
    assert "the judge's server is gone" in last[0]["scores"]["parity"]["detail"]
    assert {(row["reward"], row["kept"]) for row in last} == {(None, False)}

    (tmp_path / "cut" / "train.parquet").unlink()
    go(tmp_path / "cut", 6, reward__max_missing=0.2)
    assert_same(go(tmp_path / "whole", 6, reward__max_missing=0.2), out, step=6)


def test_a_failure_in_the_first_step_leaves_its_responses_and_no_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = failed(tmp_path, MissingVerdictsError, after_steps=0)
    assert not (out / "checkpoints").exists() or not list((out / "checkpoints").iterdir())
    assert {row["step"] for row in records(out / "samples.jsonl")} == {1}
    assert any("no step was finished" in line for line in caplog.messages)


@pytest.mark.parametrize("error", [EngineLostError, StallError])
def test_a_lost_engine_and_a_stall_save_too(
    tmp_path: Path, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fake_run(tmp_path, total_steps=6, trainer__save_freq=-1)
    generate = run.collector.rollouts.generate
    calls: list[int] = []

    async def lost(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise error("gone")
        return await generate(*args, **kwargs)

    monkeypatch.setattr(
        type(run.collector.rollouts), "generate", lambda _, *args, **kwargs: lost(*args, **kwargs)
    )
    with pytest.raises(error, match="gone"):
        asyncio.run(train_and_close(run))
    assert [path.name for path in (run.out_dir / "checkpoints").iterdir()] == ["step_000003"]


def test_a_checkpoint_that_cannot_be_written_does_not_hide_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rmrl.trainer.checkpoint.write_files", full)
    failed(tmp_path, MissingVerdictsError, after_steps=2)
    assert any(
        "no checkpoint of step 2 could be saved ([Errno 28] No space left on device)" in line
        for line in caplog.messages
    )


def test_samples_that_cannot_be_written_neither_hide_the_error_nor_cost_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = jsonl.append

    def broken(file: Any, rows: Any) -> None:
        """Fails for the samples, also those of the failed step, and writes the metrics."""
        if Path(file.name).name == "samples.jsonl":
            raise RecursionError("too deep")
        append(file, rows)

    monkeypatch.setattr(jsonl, "append", broken)
    out = failed(tmp_path, MissingVerdictsError, after_steps=1)
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step_000001"]
    faults = [line for line in caplog.messages if "RecursionError: too deep" in line]
    assert [line.partition(" could")[0] for line in faults] == [
        "samples of step 1",
        "samples of step 2",
    ]


def test_without_a_frequency_time_decides_and_the_newest_two_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmrl.trainer.saves.SAVE_EVERY_S", 0.0)
    out = go(tmp_path, 4)
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == [
        "step_000003",
        "step_000004",
    ]


def test_half_an_hour_has_not_passed_after_a_moment(tmp_path: Path) -> None:
    out = go(tmp_path, 4)
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step_000004"]


def test_metrics_are_written_whatever_loggers_are_named(tmp_path: Path) -> None:
    config = Config()
    config.trainer.logger = ["console"]
    checked = cast("Checked", SimpleNamespace(config=config, out_dir=tmp_path, total_steps=3))
    telemetry = build._telemetry(checked, None)
    telemetry.sinks.log(1, {"reward/mean": 0.5})
    telemetry.close()
    assert records(tmp_path / "metrics.jsonl") == [{"step": 1, "reward/mean": 0.5}]

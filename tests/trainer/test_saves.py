"""Checkpoints are written between two steps and completed while the next ones run."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from rmrl.errors import CheckpointError, StallError
from rmrl.trainer import checkpoint
from rmrl.trainer.saves import Saves
from tests.patience import expires
from tests.trainer.fake_run import fake_run, train_and_close
from tests.trainer.saved import save


def write(folder: Path) -> None:
    (folder / "weights").write_bytes(b"1234")


def saves(root: Path, keep: int | None = None) -> Saves:
    return Saves(root=root, keep=keep, config_fingerprint="f")


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if not path.name.startswith("."))


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Manifests are written when the event is set."""
    may_write = threading.Event()
    original = checkpoint._write_manifest  # pyright: ignore[reportPrivateUsage]

    def waits(folder: Path, facts: dict[str, object]) -> None:
        assert may_write.wait(60)
        original(folder, facts)

    monkeypatch.setattr(checkpoint, "_write_manifest", waits)
    return may_write


async def test_a_save_returns_before_the_disk_has_it(
    tmp_path: Path, slow_disk: threading.Event
) -> None:
    kept = saves(tmp_path)
    await kept.save(1, write)
    # killed here, the run goes on from the one before
    assert names(tmp_path) == []
    assert checkpoint.newest_complete(tmp_path) is None
    assert (kept.step, kept.written_step) == (-1, 1)
    assert kept.last().startswith("there is no checkpoint")
    slow_disk.set()
    await kept.settle()
    assert kept.step == 1
    found = checkpoint.newest_complete(tmp_path)
    assert found is not None
    assert (found.step, found.config_fingerprint) == (1, "f")


async def test_the_next_save_waits_for_the_one_before(
    tmp_path: Path, slow_disk: threading.Event
) -> None:
    kept = saves(tmp_path, keep=1)
    await kept.save(1, write)
    second = asyncio.create_task(kept.save(2, write))
    await asyncio.sleep(0.05)
    assert not second.done()
    slow_disk.set()
    await second
    await kept.settle()
    assert names(tmp_path) == ["step_000002"]


async def test_a_step_is_saved_once(tmp_path: Path) -> None:
    kept = saves(tmp_path)
    await kept.save(1, write)

    def never(folder: Path) -> None:
        raise AssertionError(folder)

    await kept.save(1, never)
    await kept.settle()
    assert kept.step == 1


async def test_a_fault_in_the_background_is_raised_once_and_the_older_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = saves(tmp_path)
    await kept.save(1, write)
    await kept.settle()

    def full(folder: Path, facts: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_write_manifest", full)
    await kept.save(2, write)
    async with asyncio.timeout(60):
        while kept.written_step == 2:
            await asyncio.sleep(0.01)
    with pytest.raises(
        CheckpointError, match=r"step 2 could not be written.*step_000001, untouched"
    ):
        kept.raise_failure()
    kept.raise_failure()
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]
    assert kept.last().startswith(f"the last checkpoint is {tmp_path}/step_000001")


async def test_who_has_no_time_to_wait_leaves_the_work_alone(
    tmp_path: Path, slow_disk: threading.Event
) -> None:
    kept = saves(tmp_path)
    await kept.save(1, write)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(expires(0.05)):
            await kept.settle()
    slow_disk.set()
    await kept.close()
    assert names(tmp_path) == ["step_000001"]


async def test_the_end_of_a_run_logs_a_fault_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(folder: Path, facts: object) -> None:
        raise ValueError("a fault of the disk")

    monkeypatch.setattr(checkpoint, "_write_manifest", broken)
    kept = saves(tmp_path)
    await kept.save(1, write)
    await kept.close()
    assert caplog.messages == ["the last checkpoint is not complete: a fault of the disk"]


def test_an_interrupt_leaves_a_whole_checkpoint(tmp_path: Path, slow_disk: threading.Event) -> None:
    async def interrupted() -> None:
        await saves(tmp_path).save(1, write)
        await asyncio.sleep(0.05)
        raise KeyboardInterrupt

    threading.Timer(0.2, slow_disk.set).start()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(interrupted())
    found = checkpoint.newest_complete(tmp_path)
    assert found is not None
    assert found.step == 1


async def test_the_checkpoint_of_another_run_is_named_where_it_is(tmp_path: Path) -> None:
    await save(tmp_path / "theirs", 10, write)
    theirs = checkpoint.verify(tmp_path / "theirs" / "step_000010")
    kept = saves(tmp_path / "ours")
    kept.resumed(theirs)
    assert kept.last().startswith(f"the last checkpoint is {tmp_path}/theirs/step_000010, and")


async def test_an_old_checkpoint_that_stays_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(root: Path, keep: int | None, best: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(checkpoint, "prune", refused)
    kept = saves(tmp_path)
    await kept.save(1, write)
    await kept.settle()
    assert kept.step == 1
    assert "older checkpoints could not be removed: [Errno 13] Permission denied" in caplog.messages


async def test_a_disk_that_hangs_is_an_error(
    tmp_path: Path, slow_disk: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmrl.trainer.saves.SEAL_S", 0.05)
    kept = saves(tmp_path)
    await kept.save(1, write)
    with pytest.raises(StallError, match=r"step 1 was not on the disk of .* after 0\.05 s"):
        await kept.settle()
    slow_disk.set()
    await kept.close()


def test_steps_run_while_a_checkpoint_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fake_run(tmp_path, total_steps=3)
    run.saves.every = 1
    run.saves.keep = None
    original = checkpoint._write_manifest  # pyright: ignore[reportPrivateUsage]
    at_step: list[tuple[object, int]] = []

    def until_the_next_step(folder: Path, facts: dict[str, object]) -> None:
        for _ in range(6000):
            if run.step > int(str(facts["step"])) or run.step == run.total_steps:
                break
            time.sleep(0.01)
        at_step.append((facts["step"], run.step))
        original(folder, facts)

    monkeypatch.setattr(checkpoint, "_write_manifest", until_the_next_step)
    asyncio.run(train_and_close(run))
    assert at_step == [(1, 2), (2, 3), (3, 3)]
    assert len(names(run.saves.root)) == 3


async def test_the_best_one_stays_until_a_better_one_is_there(tmp_path: Path) -> None:
    """Each save names the best step that its own state has: a killed run returns to that."""
    run = saves(tmp_path, keep=1)
    await run.save(1, write, best=1)
    await run.save(2, write, best=1)
    await run.settle()
    assert names(tmp_path) == ["best", "step_000001", "step_000002"]
    assert (tmp_path / "best").resolve().name == "step_000001"
    await run.save(3, write, best=3)
    await run.settle()
    assert names(tmp_path) == ["best", "step_000003"]
    assert (tmp_path / "best").resolve().name == "step_000003"

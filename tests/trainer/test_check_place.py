"""How many processes, and whether a run is finished."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmrl.config.schema import Config
from rmrl.trainer import check_place, checkpoint
from rmrl.trainer.check_place import fill_processes, finished_step, process_advice, process_problems


def with_gpus(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        check_place, "device_count", lambda device: count if device == "cuda" else 0
    )
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize(
    ("device", "gpus", "expected"), [("cpu", 4, 1), ("cuda", 4, 4), ("cuda", 1, 1)]
)
def test_the_default_is_what_the_machine_has(
    device: str, gpus: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(gpus, monkeypatch)
    config = Config()
    fill_processes(config, device=device)
    assert config.trainer.n_gpus_per_node == expected


def test_a_number_that_is_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(4, monkeypatch)
    config = Config()
    config.trainer.n_gpus_per_node = 2
    fill_processes(config, device="cuda")
    assert config.trainer.n_gpus_per_node == 2


def test_more_processes_than_gpus_are_refused_unless_a_cluster_is_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_gpus(4, monkeypatch)
    config = Config()
    config.trainer.n_gpus_per_node = 8
    (problem,) = process_problems(config, device="cuda")
    assert "trainer.n_gpus_per_node=8, and this machine has 4 GPUs" in problem
    assert list(process_problems(config, device="cpu")) == []
    config.ray_kwargs.ray_init["address"] = "10.0.0.1:6379"
    assert list(process_problems(config, device="cuda")) == []


def test_more_processes_than_cores_are_advised_against(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(0, monkeypatch)
    monkeypatch.setattr(check_place, "cores", lambda: 2)
    config = Config()
    config.trainer.n_gpus_per_node = 8
    (advice,) = process_advice(config, device="cpu")
    assert "starts 8 training processes on 2 CPU cores" in advice
    config.trainer.n_gpus_per_node = 2
    assert list(process_advice(config, device="cpu")) == []


def saved(folder: Path, step: int) -> None:
    async def write(fresh: Path) -> None:
        (fresh / "trainer.json").write_text("{}")

    asyncio.run(checkpoint.save(folder / "checkpoints", step, write))


@pytest.mark.parametrize(
    ("step", "total", "finished"), [(3, 4, None), (4, 4, 4), (5, 4, 5), (0, 0, None)]
)
def test_a_run_with_no_step_left_is_finished(
    tmp_path: Path, step: int, total: int, finished: int | None
) -> None:
    if step:
        saved(tmp_path, step)
    assert finished_step(Config(), tmp_path, total_steps=total) == finished


def test_a_torn_last_checkpoint_is_not_the_end(tmp_path: Path) -> None:
    saved(tmp_path, 3)
    saved(tmp_path, 4)
    newest = max((tmp_path / "checkpoints").iterdir())
    (newest / "trainer.json").write_text("torn")
    assert finished_step(Config(), tmp_path, total_steps=4) is None


def test_a_finished_run_may_still_validate(tmp_path: Path) -> None:
    saved(tmp_path, 4)
    config = Config()
    config.trainer.val_only = True
    assert finished_step(config, tmp_path, total_steps=4) is None

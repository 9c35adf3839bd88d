"""How many processes, and whether a run is finished."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmrl.cluster.devices import Devices, Machine, cpu_devices
from rmrl.cluster.gpu import Gpu
from rmrl.config.schema import Config
from rmrl.errors import ConfigError
from rmrl.models.checkpoint_inspect import weight_bytes
from rmrl.trainer import check_place
from rmrl.trainer.check_place import (
    fill_processes,
    finished_step,
    process_problems,
    published_weights_advice,
)
from tests.trainer.saved import save

GPU = Gpu(total_bytes=80 * 2**30, free_bytes=79 * 2**30)


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def devices(kind: str, gpus: int) -> Devices:
    if kind == "cpu":
        return cpu_devices()
    return Devices(kind="cuda", machines=(Machine(gpus=(GPU,) * gpus),))


@pytest.mark.parametrize(
    ("device", "gpus", "expected"), [("cpu", 4, 1), ("cuda", 4, 4), ("cuda", 1, 1)]
)
def test_the_default_is_what_the_machine_has(device: str, gpus: int, expected: int) -> None:
    config = Config()
    fill_processes(config, devices(device, gpus))
    assert config.trainer.n_gpus_per_node == expected


def test_a_number_that_is_given_stays() -> None:
    config = Config()
    config.trainer.n_gpus_per_node = 2
    fill_processes(config, devices("cuda", 4))
    assert config.trainer.n_gpus_per_node == 2


def test_more_processes_than_gpus_are_refused_unless_a_cluster_is_joined() -> None:
    config = Config()
    config.trainer.n_gpus_per_node = 8
    (problem,) = process_problems(config, devices("cuda", 4))
    assert "trainer.n_gpus_per_node=8, and this machine has 4 GPUs" in problem
    config.ray_kwargs.ray_init["address"] = "10.0.0.1:6379"
    assert list(process_problems(config, devices("cuda", 4))) == []


def test_more_processes_than_cores_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_place, "cores", lambda: 2)
    config = Config()
    config.trainer.n_gpus_per_node = 8
    (problem,) = process_problems(config, cpu_devices())
    assert problem == (
        "trainer.n_gpus_per_node=8, and this machine has 2 CPU cores: 8 training processes would"
        " take turns on them; give at most 2, or leave it out"
    )
    config.ray_kwargs.ray_init["address"] = "10.0.0.1:6379"
    assert list(process_problems(config, cpu_devices())) == []
    config = Config()
    config.trainer.n_gpus_per_node = 2
    assert list(process_problems(config, cpu_devices())) == []


def test_a_rollout_engine_in_more_parts_than_cores_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check_place, "cores", lambda: 2)
    config = Config()
    config.trainer.n_gpus_per_node = 1
    config.actor_rollout_ref.rollout.tensor_parallel_size = 8
    (problem,) = process_problems(config, cpu_devices())
    assert problem.startswith("actor_rollout_ref.rollout.tensor_parallel_size=8 starts a process")
    assert problem.endswith("; leave it out: one process uses all of them")
    config.actor_rollout_ref.rollout.tensor_parallel_size = 2
    assert list(process_problems(config, cpu_devices())) == []


@pytest.mark.parametrize(
    ("pool", "width", "words"),
    [
        (None, 2, ""),
        (None, 3, "tensor_parallel_size=3 does not divide the 4 devices of trainer"),
        (None, 8, "tensor_parallel_size=8 does not divide the 4 devices of trainer"),
        ("sampling", 3, ""),
        ("sampling", 2, "=2 does not divide the 3 devices of pool 'sampling': give a divisor of 3"),
        ("nowhere", 2, ""),
    ],
)
def test_a_rollout_engine_divides_the_devices_of_its_place(
    pool: str | None, width: int, words: str
) -> None:
    config = Config()
    config.trainer.n_gpus_per_node = 4
    config.trainer.resource_pools = {"sampling": {"n_gpus_per_node": 3}}
    config.actor_rollout_ref.rollout.pool = pool
    config.actor_rollout_ref.rollout.tensor_parallel_size = width
    problems = list(process_problems(config, devices("cuda", 8)))
    assert len(problems) == bool(words)
    assert words in "".join(problems)


def saved(folder: Path, step: int) -> None:
    async def write(fresh: Path) -> None:
        (fresh / "trainer.json").write_text("{}")

    asyncio.run(save(folder / "checkpoints", step, write))


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


def docker(path: Path, shared: int, temporary: int) -> tuple[Config, Devices]:
    """A container with a GPU, and a policy to publish."""
    config = Config()
    config.actor_rollout_ref.model.path = str(path)
    config.actor_rollout_ref.rollout.dtype = "float32"
    roomy = Machine(gpus=(GPU,), shared_memory_bytes=2**40, temporary_bytes=2**40)
    small = Machine(gpus=(GPU,), shared_memory_bytes=shared, temporary_bytes=temporary)
    return config, Devices(kind="cuda", machines=(roomy, small))


def test_shared_memory_smaller_than_the_published_file_is_named_with_what_to_type(
    tiny_llama: Path,
) -> None:
    file = weight_bytes(str(tiny_llama), "float32")
    needed = file + file // 10
    config, container = docker(tiny_llama, needed - 1, 2**40)
    (advice,) = published_weights_advice(config, container)
    assert "/dev/shm has 0.00 GiB free" in advice
    assert "--shm-size=1g" in advice
    assert "goes to the temporary folder instead" in advice
    config, container = docker(tiny_llama, needed, 0)
    assert list(published_weights_advice(config, container)) == []
    config, container = docker(tiny_llama, needed - 1, needed - 1)
    with pytest.raises(ConfigError, match=r"--shm-size=1g .* or point TMPDIR at a larger disk"):
        list(published_weights_advice(config, container))
    config.actor_rollout_ref.rollout.weight_transport = "ipc"
    assert list(published_weights_advice(config, container)) == []


def test_folders_of_a_machine_that_are_unknown_are_not_judged(tiny_llama: Path) -> None:
    config, _ = docker(tiny_llama, 0, 0)
    assert list(published_weights_advice(config, devices("cuda", 1))) == []
    (machine,) = cpu_devices().machines
    assert machine.temporary_bytes is not None
    assert machine.temporary_bytes > 0

"""Devices that a job can have, and the memory of a machine within its container's limit."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rmrl.cluster import devices, nvml
from rmrl.cluster.devices import (
    Devices,
    Machine,
    choose_devices,
    container_free_bytes,
    cores,
    free_bytes,
    local_devices,
    this_machine,
    total_bytes,
)
from rmrl.cluster.gpu import Gpu
from rmrl.config.schema import Config
from rmrl.errors import ConfigError
from rmrl.trainer.check_place import fill_processes


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text, encoding="ascii")


def test_version_2_counts_pages_of_files_as_free(tmp_path: Path) -> None:
    write(
        tmp_path,
        memory__max="1000\n",
        memory__current="700\n",
        memory__stat="anon 300\ninactive_file 250\n",
    )
    assert container_free_bytes(tmp_path, default=9) == 1000 - 700 + 250


def test_no_limit_is_the_machine(tmp_path: Path) -> None:
    assert container_free_bytes(tmp_path, default=9) == 9
    write(
        tmp_path, memory__max="max\n", memory__current="700\n", memory__stat="inactive_file 250\n"
    )
    assert container_free_bytes(tmp_path, default=9) == 9


def test_version_1_and_more_used_than_allowed(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    write(
        folder,
        memory__limit_in_bytes="1000",
        memory__usage_in_bytes="900",
        memory__stat="total_inactive_file 50",
    )
    assert container_free_bytes(tmp_path, default=9) == 150
    write(folder, memory__usage_in_bytes="1100")
    assert container_free_bytes(tmp_path, default=9) == 0


GIB = 2**30
EMPTY_GPU = Gpu(total_bytes=80 * GIB, free_bytes=79 * GIB)
USED_GPU = Gpu(total_bytes=80 * GIB, free_bytes=20 * GIB)
SMALL_GPU = Gpu(total_bytes=24 * GIB, free_bytes=23 * GIB)


def with_driver(
    monkeypatch: pytest.MonkeyPatch, *gpus: Gpu | None, cuda_build: bool = True
) -> None:
    monkeypatch.setattr(devices, "has_gpu_node", lambda: True)
    monkeypatch.setattr(nvml, "driver_is_loaded", lambda: True)
    monkeypatch.setattr(nvml, "visible_gpus", lambda: list(gpus))
    monkeypatch.setattr(torch.version, "cuda", "13.0" if cuda_build else None)


def without_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_DEV", Path("/there/is/no/such/folder"))
    monkeypatch.setattr(nvml, "driver_is_loaded", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


def test_this_machine() -> None:
    assert 0 < free_bytes() <= total_bytes()
    assert cores() >= 1
    cpu = local_devices("cpu")
    assert cpu.kind == "cpu"
    assert 0 < cpu.free_bytes(1) == cpu.host_free_bytes() <= total_bytes()
    assert (cpu.total_bytes(), cpu.gpus_per_node(1)) == (0, 0)


def test_gpus_are_found_without_a_context(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_driver(monkeypatch, EMPTY_GPU, USED_GPU)

    def context(*_: object) -> None:
        raise AssertionError("torch.cuda.is_available and mem_get_info initialize CUDA")

    for name in ("is_available", "mem_get_info", "get_device_properties", "device_count"):
        monkeypatch.setattr(torch.cuda, name, context)
    with caplog.at_level(logging.INFO):
        found = local_devices("auto")
    assert found.kind == "cuda"
    assert found.gpus_per_node(1) == 2
    assert found.total_bytes() == 80 * GIB
    assert found.free_bytes(1) == 79 * GIB  # one process uses the first GPU alone
    assert found.free_bytes(2) == 20 * GIB
    assert caplog.messages == ["trainer.device=auto: cuda, this machine has 2 GPU(s)"]


def test_a_gpu_that_is_not_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    without_driver(monkeypatch)
    with pytest.raises(
        ConfigError,
        match=(
            r"trainer\.device=cuda, and this machine has no GPU that can be used \(it has no NVIDIA"
            r" driver\): .*ray start --address=.*use trainer\.device=cpu"
        ),
    ):
        local_devices("cuda")


def test_auto_reports_why_it_takes_the_cpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_driver(monkeypatch)
    with caplog.at_level(logging.INFO):
        assert local_devices("auto").kind == "cpu"
    with_driver(monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with caplog.at_level(logging.INFO):
        assert local_devices("auto").kind == "cpu"
    start = "trainer.device=auto: cpu, this machine has no GPU that can be used"
    assert caplog.messages == [
        f"{start} (it has no NVIDIA driver)",
        f"{start} (the driver lists no GPU of CUDA_VISIBLE_DEVICES='')",
    ]
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_a_driver_that_is_not_loaded_is_a_machine_without_gpus(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_driver(monkeypatch)
    monkeypatch.setattr(nvml, "driver_is_loaded", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with caplog.at_level(logging.INFO):
        assert local_devices("auto").kind == "cpu"
    assert caplog.messages == [
        "trainer.device=auto: cpu, this machine has no GPU that can be used (no NVIDIA driver is"
        " loaded)"
    ]


def test_without_a_driver_torch_is_not_imported(tmp_path: Path) -> None:
    """Its import takes longer than a job with rules alone."""
    code = (
        "import sys; from pathlib import Path; from rmrl.cluster import devices\n"
        f"devices._DEV = Path({str(tmp_path)!r})\n"
        "print(devices.local_devices('auto').kind, 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["cpu", "False"]


@pytest.mark.parametrize("node", ["kfd", "nvgpu"])
def test_a_gpu_without_nvml_is_asked_of_torch(
    node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_driver(monkeypatch)
    (tmp_path / node).touch()
    monkeypatch.setattr(devices, "_DEV", tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (10 * GIB, 12 * GIB))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Jetson")
    assert local_devices("auto").machines[0].gpus == (
        Gpu(total_bytes=12 * GIB, free_bytes=10 * GIB, name="Jetson"),
    )


def test_torch_reports_unified_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (100 * GIB, 120 * GIB))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Jetson")
    (gpu,) = local_devices("cuda").machines[0].gpus
    assert gpu == Gpu(total_bytes=120 * GIB, free_bytes=100 * GIB, name="Jetson")


def test_a_build_of_torch_for_cpus_beside_gpus_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_driver(monkeypatch, EMPTY_GPU, EMPTY_GPU, cuda_build=False)
    assert local_devices("auto").kind == "cpu"
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "the driver lists 2, and torch" in record.getMessage()
    with pytest.raises(ConfigError, match=r"the driver lists 2, and torch .* is built for CPUs"):
        local_devices("cuda")


def test_machines_of_a_cluster_count_with_most_gpus_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    head = Machine(without="Ray counts no GPU on 10.0.0.1")
    small = Machine(gpus=(SMALL_GPU,) * 2, host_free_bytes=64 * GIB)
    large = Machine(gpus=(EMPTY_GPU,) * 8, host_free_bytes=512 * GIB)
    with caplog.at_level(logging.INFO):
        found = choose_devices("auto", [head, small, large], where="the Ray cluster at auto")
    assert caplog.messages == [
        "trainer.device=auto: cuda, the Ray cluster at auto has machines with 8, 2 GPU(s)"
    ]
    assert [found.gpus_per_node(nodes) for nodes in (1, 2, 3)] == [8, 2, 0]
    assert found.total_bytes() == 24 * GIB
    assert found.host_free_bytes() == 64 * GIB
    with pytest.raises(ConfigError, match=r"\(Ray counts no GPU on 10\.0\.0\.1\)"):
        choose_devices("cuda", [head], where="the Ray cluster at auto")


def test_the_process_count_follows_the_machines_of_the_cluster() -> None:
    assert this_machine().host_free_bytes > 0
    two = Devices(
        kind="cuda", machines=(Machine(gpus=(EMPTY_GPU,) * 8), Machine(gpus=(EMPTY_GPU,) * 4))
    )
    for nodes, expected in ((1, 8), (2, 4), (3, 4)):
        config = Config()
        config.trainer.nnodes = nodes
        fill_processes(config, two)
        assert config.trainer.n_gpus_per_node == expected

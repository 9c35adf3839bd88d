"""Memory of GPUs through a driver library that is not there: which GPUs a process may use."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.cluster.nvml import driver_is_loaded, library, visible_gpus
from rmrl.errors import InfrastructureError

GIB = 2**30


class Driver:
    """Stand-in of libnvidia-ml: GPUs of different sizes, and a MIG instance of 10 GiB."""

    def __init__(self, *sizes: int, fails: int = 0, memory_fails: int = 0) -> None:
        self.sizes = [size * GIB for size in sizes]
        self.mig = len(sizes)
        self.fails = fails
        self.memory_fails = memory_fails
        self.open = 0

    def nvmlInit_v2(self) -> int:
        self.open += not self.fails
        return self.fails

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.sizes)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = index + 1  # a null pointer is no handle
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        handle._obj.value = self.mig + 1
        return 0 if uuid == b"MIG-known" else 6

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, size: int) -> int:
        assert size == 96
        text.value = f"GPU-{handle.value}{handle.value}ab".encode()
        return 0

    def nvmlDeviceGetName(self, handle: Any, text: Any, size: int) -> int:
        assert size == 96
        text.value = f"NVIDIA H{handle.value}00".encode()
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        total = [*self.sizes, 10 * GIB][handle.value - 1]
        memory._obj.total = total
        memory._obj.free = total - GIB
        memory._obj.used = GIB
        return self.memory_fails


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [80, 40, 24]),
        ("", []),
        ("-1", []),
        ("1", [40]),
        ("2,0", [24, 80]),
        ("0,7,1", [80]),  # CUDA stops at an entry that it does not know
        ("GPU-22ab,GPU-33", [40, 24]),
        ("GPU-9", []),
        ("MIG-known", [10]),
        ("MIG-other", []),
    ],
)
def test_the_gpus_of_cuda_visible_devices(
    visible: str | None, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    driver = Driver(80, 40, 24)
    found = visible_gpus(driver)
    assert [gpu and (gpu.total_bytes, gpu.free_bytes) for gpu in found] == [
        (size * GIB, (size - 1) * GIB) for size in expected
    ]
    names = {80: "NVIDIA H100", 40: "NVIDIA H200", 24: "NVIDIA H300", 10: "NVIDIA H400"}
    assert [gpu and gpu.name for gpu in found] == [names[size] for size in expected]
    assert driver.open == 0  # shut down again


def test_a_driver_that_fails_is_a_sentence() -> None:
    with pytest.raises(InfrastructureError, match=r"\(NVML, code 18\): compare .* nvidia-smi"):
        visible_gpus(Driver(80, fails=18))


@pytest.mark.parametrize(("code", "loaded"), [(0, True), (9, False), (12, False)])
def test_a_driver_that_is_installed_may_not_be_loaded(code: int, loaded: bool) -> None:
    driver = Driver(80, fails=code)
    assert driver_is_loaded(driver) is loaded
    assert driver.open == 0


def test_another_failure_at_the_start_is_not_a_machine_without_gpus() -> None:
    with pytest.raises(InfrastructureError, match=r"\(NVML, code 18\)"):
        driver_is_loaded(Driver(80, fails=18))


def test_unified_memory_has_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus(Driver(128, memory_fails=3)) == [None]
    with pytest.raises(InfrastructureError, match=r"\(NVML, code 999\)"):
        visible_gpus(Driver(128, memory_fails=999))


def test_a_machine_without_the_library_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmrl.cluster.nvml._LIBRARY", "libnvidia-ml-absent.so.1")
    assert library() is None

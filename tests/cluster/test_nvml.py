"""GPUs' memory through NVIDIA's bindings, with a stand-in for the driver's library: which GPUs a
process may use."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml
import pytest

from rmrl.cluster.nvml import driver_is_loaded, visible_gpus
from rmrl.errors import InfrastructureError

GIB = 2**30


PLACES = [ctypes.create_string_buffer(1) for _ in range(4)]
"""What the handles point to: NVML's are addresses."""


def point_to(handle: Any, place: int) -> None:
    handle._obj.contents = ctypes.cast(PLACES[place], type(handle._obj)).contents


def number(handle: Any) -> int:
    """1 for the first GPU."""
    address = ctypes.addressof(handle.contents)
    return 1 + [ctypes.addressof(place) for place in PLACES].index(address)


class Driver:
    """Stand-in of libnvidia-ml: GPUs of different sizes, and a MIG instance of 10 GiB."""

    def __init__(self, *sizes: int, fails: int = 0, memory_fails: int = 0) -> None:
        self.sizes = [size * GIB for size in sizes]
        self.mig = len(sizes)
        self.fails = fails
        self.memory_fails = memory_fails
        self.open = 0

    def nvmlInitWithFlags(self, flags: int) -> int:
        assert flags == 0
        self.open += not self.fails
        return self.fails

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.sizes)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        point_to(handle, index.value)
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> int:
        point_to(handle, self.mig)
        return 0 if uuid.value == b"MIG-known" else 6

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, size: Any) -> int:
        assert size.value == 96
        text.value = f"GPU-{number(handle)}{number(handle)}ab".encode()
        return 0

    def nvmlDeviceGetName(self, handle: Any, text: Any, size: Any) -> int:
        assert size.value == 96
        text.value = f"NVIDIA H{number(handle)}00".encode()
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        total = [*self.sizes, 10 * GIB][number(handle) - 1]
        memory._obj.total = total
        memory._obj.free = total - GIB
        memory._obj.used = GIB
        return self.memory_fails


def install(driver: Driver | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put it behind the bindings. None: no library can be loaded."""
    monkeypatch.setattr(pynvml, "nvmlLib", driver)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})


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
    install(driver, monkeypatch)
    found = visible_gpus()
    assert [gpu and (gpu.total_bytes, gpu.free_bytes) for gpu in found] == [
        (size * GIB, (size - 1) * GIB) for size in expected
    ]
    names = {80: "NVIDIA H100", 40: "NVIDIA H200", 24: "NVIDIA H300", 10: "NVIDIA H400"}
    assert [gpu and gpu.name for gpu in found] == [names[size] for size in expected]
    assert driver.open == 0  # shut down again


def test_a_driver_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    install(Driver(80, fails=18), monkeypatch)
    with pytest.raises(InfrastructureError, match=r"\(NVML, code 18\): compare .* nvidia-smi"):
        visible_gpus()


@pytest.mark.parametrize(("code", "loaded"), [(0, True), (9, False), (12, False)])
def test_a_driver_that_is_installed_may_not_be_loaded(
    code: int, loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(80, fails=code)
    install(driver, monkeypatch)
    assert driver_is_loaded() is loaded
    assert driver.open == 0


def test_another_failure_at_the_start_is_not_a_machine_without_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(Driver(80, fails=18), monkeypatch)
    with pytest.raises(InfrastructureError, match=r"\(NVML, code 18\)"):
        driver_is_loaded()


def test_unified_memory_has_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    install(Driver(128, memory_fails=3), monkeypatch)
    assert visible_gpus() == [None]
    driver = Driver(128, memory_fails=999)
    install(driver, monkeypatch)
    with pytest.raises(InfrastructureError, match=r"\(NVML, code 999\)"):
        visible_gpus()
    assert driver.open == 0


def test_a_machine_without_the_library_has_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    install(None, monkeypatch)
    monkeypatch.setattr(pynvml, "CDLL", no_library)
    assert not driver_is_loaded()


def no_library(name: str) -> None:
    raise OSError(name)

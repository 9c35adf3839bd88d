"""The GPU worker of vLLM falls asleep beside other users of the device; vLLM is imported, no GPU is
needed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest


def test_a_neighbour_that_allocates_meanwhile_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from vllm.v1.worker.gpu_worker import Worker

    from rmrl.inference.vllm.gpu_worker import SleepingGPUWorker

    worker = SleepingGPUWorker.__new__(SleepingGPUWorker)
    levels: list[int] = []

    def grows(_: Worker, level: int = 1) -> None:
        levels.append(level)
        raise AssertionError("Memory usage increased after sleeping.")

    monkeypatch.setattr(Worker, "sleep", grows)
    worker.sleep(2)
    assert levels == [2]
    assert "another process allocates on it" in caplog.text

    def breaks(_: Worker, level: int = 1) -> None:
        raise AssertionError(f"level {level}")

    monkeypatch.setattr(Worker, "sleep", breaks)
    with pytest.raises(AssertionError, match="level 1"):
        worker.sleep()


def test_the_sentence_is_still_vllms() -> None:
    """What is passed over is one assertion of vLLM's worker; its text must not have changed."""
    import inspect

    from vllm.v1.worker.gpu_worker import Worker

    from rmrl.inference.vllm import gpu_worker

    assert gpu_worker._GREW in inspect.getsource(Worker.sleep)


@dataclass
class FakeDevice:
    """A GPU of 80 GiB as PyTorch's allocator sees it, in GiB. vLLM's sleep unmaps what it may, and
    empties the cache."""

    mapped: float
    """Weights and KV cache, in the pool that sleep unmaps; counted as reserved while unmapped."""
    kept: float
    """Reserved, in use, and not in that pool."""
    cached: float
    """Reserved and free."""
    unmapped: float = 0.0

    def reserved_bytes(self) -> int:
        return int((self.mapped + self.unmapped + self.kept + self.cached) * 2**30)

    def free_bytes(self) -> int:
        return int((80 - self.mapped - self.kept - self.cached) * 2**30)

    def sleep(self) -> None:
        self.mapped, self.unmapped, self.cached = 0.0, self.mapped, 0.0

    def wake_up(self) -> None:
        self.mapped, self.unmapped = self.unmapped, 0.0


def test_an_emptied_cache_is_not_subtracted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sleeping engine that holds 1.6 GiB, and gave back 37 GiB and a cache of 2.5 GiB, says 1.6
    GiB and a context."""
    from vllm.v1.worker.gpu_worker import Worker

    from rmrl.inference.vllm import gpu_worker
    from rmrl.inference.vllm.worker_extension import CONTEXT_BYTES

    device = FakeDevice(mapped=37.0, kept=1.6, cached=2.5)
    monkeypatch.setattr(gpu_worker, "free_bytes", device.free_bytes)
    monkeypatch.setattr(gpu_worker, "reserved_bytes", device.reserved_bytes)
    monkeypatch.setattr(Worker, "sleep", lambda _, level=1: device.sleep())
    monkeypatch.setattr(Worker, "wake_up", lambda _, tags=None: device.wake_up())
    worker = gpu_worker.SleepingGPUWorker.__new__(gpu_worker.SleepingGPUWorker)
    worker.sleep(1)
    assert worker.asleep_bytes == pytest.approx(1.6 * 2**30 + CONTEXT_BYTES, abs=4)
    worker.wake_up(["weights"])
    assert worker.asleep_bytes is None

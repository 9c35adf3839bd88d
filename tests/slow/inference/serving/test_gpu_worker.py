"""The GPU worker of vLLM falls asleep beside other users of the device; vLLM is imported, no GPU is
needed."""

from __future__ import annotations

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


def test_a_worker_knows_what_sleeping_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.worker.gpu_worker import Worker

    from rmrl.inference.vllm import gpu_worker

    worker = gpu_worker.SleepingGPUWorker.__new__(gpu_worker.SleepingGPUWorker)
    free = iter([10, 37])
    monkeypatch.setattr(gpu_worker, "free_bytes", lambda: next(free))
    monkeypatch.setattr(Worker, "sleep", lambda _, level=1: None)
    monkeypatch.setattr(Worker, "wake_up", lambda _, tags=None: None)
    worker.sleep(1)
    assert worker.freed_bytes == 27
    worker.wake_up(["weights"])
    assert worker.freed_bytes is None

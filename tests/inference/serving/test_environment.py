import subprocess
import sys

import pytest

from rmrl.backends.megatron.backend import MEGATRON
from rmrl.inference.environment import engine_environment, thread_environment, train_environment


def test_threads_and_multiprocessing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    env = engine_environment(device="cpu", threads=3)
    assert env["OMP_NUM_THREADS"] == "3"
    assert env["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert env["TORCHDYNAMO_DISABLE"] == "1"
    assert "HF_HUB_OFFLINE" not in env
    assert all(isinstance(value, str) for value in env.values())


def test_at_least_one_thread() -> None:
    assert engine_environment(device="cpu", threads=0)["OMP_NUM_THREADS"] == "1"


def test_cuda_keeps_compilation() -> None:
    assert "TORCHDYNAMO_DISABLE" not in engine_environment(device="cuda", threads=1)


def test_what_the_user_set_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    env = engine_environment(device="cuda", threads=1)
    assert env["HF_HUB_OFFLINE"] == "1"
    assert env["VLLM_LOGGING_LEVEL"] == "DEBUG"


def test_nothing_heavy_is_imported() -> None:
    modules = (
        "rmrl.inference.environment, rmrl.inference.vllm.arguments, rmrl.inference.reward_engines,"
        " tests.support.fake_reward_engine, rmrl.inference.rollout, tests.support.fake_rollout"
    )
    code = (
        f"import {modules}, sys; sys.exit(bool({{'torch', 'vllm', 'transformers', 'ray'}} &"
        " set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_megatrons_work_stays_in_one_queue_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    assert (
        train_environment(threads=2, further=MEGATRON.environment)["CUDA_DEVICE_MAX_CONNECTIONS"]
        == "1"
    )
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in train_environment(threads=2)
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8")
    assert (
        train_environment(threads=2, further=MEGATRON.environment)["CUDA_DEVICE_MAX_CONNECTIONS"]
        == "8"
    )


def test_ray_hides_no_gpu_from_engines_and_training() -> None:
    """Their actors request none of Ray's GPUs: those belong to the placement."""
    for made in (engine_environment(device="cuda", threads=1), train_environment(threads=1)):
        assert made["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] == "0"
    assert train_environment(threads=2).items() >= thread_environment(2).items()

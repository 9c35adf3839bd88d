"""Environment variables of an engine process. They must be set before torch or vLLM is imported
there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

Device = Literal["cpu", "cuda"]

BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
_PASSED_ON = ("HF_HUB_OFFLINE", "HF_HOME", "VLLM_LOGGING_LEVEL", "VLLM_USE_V2_MODEL_RUNNER")


def thread_environment(threads: int) -> dict[str, str]:
    """Return variables for any process that computes with `threads` CPU threads (at least 1). The
    user's own OMP_WAIT_POLICY takes precedence."""
    count = str(max(1, threads))
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        # Threads that wait for one another sleep instead of spinning, which on busy cores costs
        # several times the work itself.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive"),
        "TOKENIZERS_PARALLELISM": "false",
    }


def train_environment(*, threads: int, further: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables for a training process, with those that its backend needs; of these the user's own
    win."""
    variables = thread_environment(threads)
    for name, value in (further or {}).items():
        variables[name] = os.environ.get(name, value)
    return variables


def engine_environment(
    *, device: Device, threads: int, batch_invariant: bool = False
) -> dict[str, str]:
    """Return variables for a process with one engine on `device` and `threads` CPU threads (at
    least 1).

    `batch_invariant` alone decides on vLLM's batch-invariant kernels: on CPU the variable of that
    name would break them. The user's own HF_HUB_OFFLINE, HF_HOME, VLLM_LOGGING_LEVEL and
    VLLM_USE_V2_MODEL_RUNNER are passed on and take precedence.
    """
    variables = {
        **thread_environment(threads),
        # The engine shares the process of its host: one process to kill, nothing left behind,
        # weights are passed without pickling.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        # The first model runner has one sampler for CPU and CUDA, which exact rollout logprobs rely
        # on.
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        BATCH_INVARIANT: "1" if batch_invariant else "0",
        # Ray would otherwise hide all GPUs from actors that request none.
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    if device == "cpu":
        variables |= _CPU
    for name in _PASSED_ON:
        if name in os.environ:
            variables[name] = os.environ[name]
    return variables


_CPU = {
    # Without this, asking for logprobs compiles a helper through inductor: 20 s and more at the
    # first request.
    "TORCHDYNAMO_DISABLE": "1",
}

"""Environment variables for an engine process. They must be set before torch or vLLM is imported
there."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping

from rmrl.inference.settings import Device
from rmrl.inference.vllm import compat

BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
_KEEP_DEVICES = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Ray would otherwise hide all GPUs from actors that request none."""
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
    """Return variables for a training process, with the variables that its backend needs. The
    user's own values win over the backend's."""
    variables = {**thread_environment(threads), **_KEEP_DEVICES}
    for name, value in (further or {}).items():
        variables[name] = os.environ.get(name, value)
    return variables


_EXACT_PINNED = "pinned_max_round_threshold_mb:16,pinned_max_cached_size_mb:16"
"""Page-locked blocks above 16 MiB have the requested size, and are freed at once. Never set the
first variable alone: torch 2.13 then takes a kept block for a larger request
(https://github.com/pytorch/pytorch/pull/192722)."""
_EXACT_PINNED_SINCE = (2, 13)
"""First torch version that reads both settings. Others refuse settings that they lack."""


def exact_pinned_possible() -> bool:
    """Return whether the installed torch can be told not to round page-locked blocks up."""
    try:
        release = importlib.metadata.version("torch").split("+")[0].split(".")[:2]
    except importlib.metadata.PackageNotFoundError:
        return False
    return tuple(int(part) for part in release) >= _EXACT_PINNED_SINCE


def exact_pinned_environment() -> dict[str, str]:
    """Return torch's allocator settings for page-locked blocks with exact sizes, added to the
    user's own. The settings about such blocks take precedence over the user's."""
    name = "PYTORCH_ALLOC_CONF"
    if name not in os.environ and "PYTORCH_CUDA_ALLOC_CONF" in os.environ:
        name = "PYTORCH_CUDA_ALLOC_CONF"
    present = os.environ.get(name, "").strip().rstrip(",")
    if "pinned_max" in present:
        return {name: present}
    return {name: f"{present},{_EXACT_PINNED}" if present else _EXACT_PINNED}


def engine_environment(
    *,
    device: Device,
    threads: int,
    batch_invariant: bool = False,
    exact_pinned: bool = False,
    second_runner: bool = False,
) -> dict[str, str]:
    """Return variables for a process with one engine on `device` and `threads` CPU threads (at
    least 1).

    `batch_invariant` alone decides on vLLM's batch-invariant kernels: on CPU the variable with that
    name would break them. The user's own HF_HUB_OFFLINE, HF_HOME, VLLM_LOGGING_LEVEL and
    VLLM_USE_V2_MODEL_RUNNER are passed on and take precedence. `exact_pinned`: a sleeping engine's
    weights take no more host memory than their size, and each sleep takes a little longer.
    `second_runner`: on CUDA vLLM from 0.32 on chooses its model runner itself and takes the second,
    whose seeds cost nothing. Never with `batch_invariant`.
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
        **_KEEP_DEVICES,
    }
    if device == "cuda" and second_runner and not batch_invariant and compat.has_second_runner():
        del variables["VLLM_USE_V2_MODEL_RUNNER"]
    if device == "cpu":
        variables |= _CPU
    elif exact_pinned and exact_pinned_possible():
        variables |= exact_pinned_environment()
    for name in _PASSED_ON:
        if name in os.environ:
            variables[name] = os.environ[name]
    return variables


_CPU = {
    # Without this, asking for logprobs compiles a helper through inductor: 20 s and more at the
    # first request.
    "TORCHDYNAMO_DISABLE": "1",
}

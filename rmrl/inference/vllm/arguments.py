"""Settings of rmrl as arguments of a vLLM engine, for CPU and CUDA. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

CPU_WORKER = "rmrl.inference.vllm.cpu_worker.SleepingCPUWorker"
WORKER_EXTENSION = "rmrl.inference.vllm.worker_extension.WorkerExtension"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSettings:
    """Settings of one engine. Defaults live in the configuration schema, not here."""

    path: str
    """Checkpoint folder or hub id."""
    tokenizer: str | None
    """Tokenizer folder or hub id; None: `path`."""
    runner: Literal["generate", "pooling"]
    device: Literal["cpu", "cuda"]
    dtype: str
    max_model_len: int
    """Tokens of one sequence, prompt and response."""
    max_num_seqs: int
    max_num_batched_tokens: int
    tensor_parallel_size: int
    gpu_memory_utilization: float
    """Share of the GPU while awake (CUDA)."""
    kv_cache_bytes: int
    """KV cache on CPU."""
    trust_remote_code: bool
    seed: int
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Engine arguments that replace or join those built here."""


def engine_arguments(settings: ServingSettings) -> dict[str, Any]:
    """Return keyword arguments for `vllm.LLM` and `vllm.EngineArgs`."""
    common: dict[str, Any] = {
        "model": settings.path,
        "tokenizer": settings.tokenizer or settings.path,
        "runner": settings.runner,
        "dtype": settings.dtype,
        "max_model_len": settings.max_model_len,
        "max_num_seqs": settings.max_num_seqs,
        # A step must be able to hold one whole sequence: encoders cannot be cut into chunks.
        "max_num_batched_tokens": max(settings.max_num_batched_tokens, settings.max_model_len),
        "tensor_parallel_size": settings.tensor_parallel_size,
        "trust_remote_code": settings.trust_remote_code,
        "seed": settings.seed,
        "disable_log_stats": True,
        "distributed_executor_backend": "uni" if settings.tensor_parallel_size == 1 else "mp",
        "worker_extension_cls": WORKER_EXTENSION,
    }
    if settings.runner == "generate":
        # White space is legal nearly everywhere in JSON, and a small model may write it until its
        # tokens are used up.
        common["structured_outputs_config"] = {
            "backend": "xgrammar",
            "disable_any_whitespace": True,
        }
    if settings.device == "cpu":
        # Graph compilation costs a minute at every start on CPU and gains little.
        device = {
            "enforce_eager": True,
            "kv_cache_memory_bytes": settings.kv_cache_bytes,
            "worker_cls": CPU_WORKER,
        }
    else:
        device = {
            "gpu_memory_utilization": settings.gpu_memory_utilization,
            "enable_sleep_mode": True,
        }
    return {**common, **device, **settings.kwargs}

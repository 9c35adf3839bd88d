"""rmrl's settings as arguments for a vLLM engine, for CPU and CUDA. Imports nothing heavy."""

from __future__ import annotations

from typing import Any, Literal

from rmrl.inference.settings import EngineSettings

CPU_WORKER = "rmrl.inference.vllm.cpu_worker.SleepingCPUWorker"
GPU_WORKER = "rmrl.inference.vllm.gpu_worker.SleepingGPUWorker"
WORKER_EXTENSION = "rmrl.inference.vllm.worker_extension.WorkerExtension"


EXACT_ARGUMENTS = {"enable_prefix_caching": False, "enable_chunked_prefill": False}
"""Attention adds up in another order when a prompt is computed in parts: its beginning cached, or
cut where a step is full."""
EXACT_ENVIRONMENT = {"VLLM_CPU_ATTN_SPLIT_KV": "0"}
"""The same when idle threads share a sequence's keys."""


def engine_arguments(
    settings: EngineSettings,
    *,
    runner: Literal["generate", "pooling"],
    max_model_len: int,
    tokenizer: str | None = None,
    chunks: bool = False,
) -> dict[str, Any]:
    """Return keyword arguments for `vllm.LLM` and `vllm.EngineArgs`. `settings.kwargs` replace or
    join those built here; `tokenizer` None: the checkpoint's; `chunks`: a prompt may be read in
    several steps."""
    step_tokens = max(settings.max_num_batched_tokens, settings.max_num_seqs)
    if not chunks:
        # A step must be able to hold one whole sequence: encoders cannot be cut into chunks.
        step_tokens = max(settings.max_num_batched_tokens, max_model_len)
    common: dict[str, Any] = {
        "model": settings.path,
        "tokenizer": tokenizer or settings.path,
        "runner": runner,
        "dtype": settings.dtype,
        "max_model_len": max_model_len,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": step_tokens,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "trust_remote_code": settings.trust_remote_code,
        "seed": settings.seed,
        "disable_log_stats": True,
        "distributed_executor_backend": "uni" if settings.tensor_parallel_size == 1 else "mp",
        "worker_extension_cls": WORKER_EXTENSION,
    }
    if runner == "generate":
        # White space is legal nearly everywhere in JSON, and a small model may write it until its
        # tokens are used up.
        common["structured_outputs_config"] = {
            "backend": "xgrammar",
            "disable_any_whitespace": True,
        }
    device: dict[str, Any]
    if settings.device == "cpu":
        # Graph compilation costs a minute at every start on CPU and gains little.
        device = {
            "enforce_eager": True,
            "kv_cache_memory_bytes": settings.kv_cache_bytes,
            "worker_cls": CPU_WORKER,
        }
    else:
        device = {
            "enable_sleep_mode": True,
            "worker_cls": GPU_WORKER,
            # Memory of CUDA graphs, 0.5 GB and more, is given back as well while it sleeps.
            "sleep_mode_offload_cudagraph": True,
        }
        if settings.gpu_memory_utilization is not None:
            device["gpu_memory_utilization"] = settings.gpu_memory_utilization
    return {**common, **device, **settings.kwargs}

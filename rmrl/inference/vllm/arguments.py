"""rmrl's settings as arguments for a vLLM engine, for CPU and CUDA. Imports nothing heavy."""

from __future__ import annotations

import os
from typing import Any, Literal

from rmrl.inference.environment import BATCH_INVARIANT
from rmrl.inference.precision import REDUCED
from rmrl.inference.settings import EngineSettings
from rmrl.models.checkpoint_inspect import architecture, read_config

CPU_WORKER = "rmrl.inference.vllm.cpu_worker.SleepingCPUWorker"
GPU_WORKER = "rmrl.inference.vllm.gpu_worker.SleepingGPUWorker"
WORKER_EXTENSION = "rmrl.inference.vllm.worker_extension.WorkerExtension"
_TEXT_CLASSIFIER = "TextForSequenceClassification"


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


def can_widen_head(settings: EngineSettings) -> bool:
    """Return whether logits can be float32 where the model computes in half precision. vLLM refuses
    a quantized head, and its batch-invariant kernels have no such product."""
    if settings.dtype not in REDUCED or os.environ.get(BATCH_INVARIANT) == "1":
        return False
    quantized = read_config(settings.path).get("quantization_config")
    return not quantized and "quantization" not in settings.kwargs


def with_wide_head(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a CUDA engine whose logits are float32, unless `hf_overrides` names
    another `head_dtype`. The product is written in float32 there and takes no longer."""
    return _with_overrides(arguments, head_dtype="float32")


def with_known_class(arguments: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the arguments of an engine for a classifier. transformers names those of the language
    part of some families, such as Gemma 3 and Qwen 3.5, by it, and vLLM does not."""
    name = architecture(path)
    if not name.endswith(_TEXT_CLASSIFIER):
        return arguments
    known = f"{name.removesuffix(_TEXT_CLASSIFIER)}ForCausalLM"
    return {"convert": "classify", **_with_overrides(arguments, architectures=[known])}


def _with_overrides(arguments: dict[str, Any], **added: Any) -> dict[str, Any]:
    overrides = arguments.get("hf_overrides") or {}
    if not isinstance(overrides, dict):
        return arguments
    return {**arguments, "hf_overrides": {**added, **overrides}}

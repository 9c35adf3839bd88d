"""Estimate the memory that an engine holds awake and put away, from its checkpoint's headers.
Nothing is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rmrl.errors import ConfigError
from rmrl.inference.engine_facts import engine_facts
from rmrl.inference.gpu_reserve import ENGINE_PROCESS_BYTES, Reserve, reserve
from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.models.adapter_inspect import read_adapter, slot_bytes
from rmrl.models.checkpoint_inspect import (
    local_checkpoint,
    read_config,
    vocabulary_size,
    weight_bytes,
)
from rmrl.rewards.residency.plan import EnginePlan

BATCH_BYTES = 512 * 2**20
"""A batch in an engine that reserves no share of a GPU."""


def sized(plans: Sequence[EnginePlan], *, device_bytes: int = 0) -> list[EnginePlan]:
    """Return the plans with `awake_bytes`, `away_bytes` and `host_bytes`. `device_bytes`: total
    memory on one GPU (CUDA only).

    An engine may state its bytes itself (`stated_bytes`). Raises ConfigError for a checkpoint
    without weights.
    """
    return [_sized(plan, device_bytes) for plan in plans]


def _sized(plan: EnginePlan, device_bytes: int) -> EnginePlan:
    spec = plan.spec
    stated_bytes = engine_facts(spec.name).stated_bytes
    if stated_bytes is not None:
        awake, asleep = stated_bytes(spec)
        return dataclasses.replace(
            plan, awake_bytes=awake, away_bytes=asleep if plan.put_away != "unload" else 0
        )
    weights = checkpoint_bytes(spec)
    adapters = adapter_bytes(spec)
    keeps_weights = plan.put_away == "sleep1"
    if spec.device == "cuda":
        # On each device.
        awake = (weights + adapters) // spec.tensor_parallel_size + ENGINE_PROCESS_BYTES["cuda"]
        if engine_facts(spec.name).reserves_gpu_share:
            if spec.gpu_memory_utilization is None:
                awake = reserved(plan, device_bytes).start
            else:
                awake = max(int(device_bytes * spec.gpu_memory_utilization), awake)
            awake += rating_bytes(plan)
        else:
            awake += BATCH_BYTES
        away = ENGINE_PROCESS_BYTES["cuda"] + engine_facts(spec.name).kept_asleep_bytes()
        host = (weights + adapters) * plan.replicas if keeps_weights else 0
    else:
        # Replicas hold the model each, the parts of a tensor-parallel group share it.
        awake = plan.replicas * (weights + adapters + BATCH_BYTES + ENGINE_PROCESS_BYTES["cpu"])
        if engine_facts(spec.name).reserves_gpu_share:
            cache = spec.kv_cache_bytes
            model_type = str(read_config(spec.path).get("model_type", ""))
            if spec.runner != "generate" and "bert" in model_type:
                cache = 0  # encoders have no KV cache
            # Twice the weights: while loading, the stored tensor and its packed form stand side by
            # side.
            parts = spec.tensor_parallel_size * (cache + ENGINE_PROCESS_BYTES["cpu"])
            awake = plan.replicas * (2 * weights + adapters + parts)
        stored = 2 * weights if keeps_weights else 0
        processes = spec.tensor_parallel_size * ENGINE_PROCESS_BYTES["cpu"]
        away = plan.replicas * (stored + adapters + processes)
        host = 0
    if plan.put_away == "unload":
        away = 0
    return dataclasses.replace(plan, awake_bytes=awake, away_bytes=away, host_bytes=host)


def reserved(plan: EnginePlan, device_bytes: int) -> Reserve:
    """Return what the engine has use for on each GPU."""
    spec = plan.spec
    return reserve(
        spec.path,
        held_bytes=checkpoint_bytes(spec) + adapter_bytes(spec),
        width=spec.tensor_parallel_size,
        context=spec.context_length(),
        sequences=spec.max_num_seqs,
        batched_tokens=spec.max_num_batched_tokens,
        gpu_bytes=device_bytes,
        generates=spec.runner == "generate",
        stays=plan.residency == "resident",
    )


_LOGIT_BYTES = 10
"""A logit in 16 bits, and in float32 before and after the log-softmax."""


def rating_bytes(plan: EnginePlan) -> int:
    """Return the bytes that logits take while the engine rates given tokens, 0 where no reward asks
    it to. vLLM does not count them in `gpu_memory_utilization`."""
    if not plan.rates_tokens:
        return 0
    tokens = plan.spec.context_length()
    at_once = engine_facts(plan.spec.name).rated_at_once()
    if at_once is not None and not plan.spec.batch_invariant:
        tokens = min(tokens, at_once)
    return tokens * vocabulary_size(plan.spec.path) * _LOGIT_BYTES


def checkpoint_bytes(spec: EngineSpec) -> int:
    """Return the weights' bytes in the engine's dtype. Older *.bin files count their bytes as
    stored."""
    try:
        return weight_bytes(spec.path, spec.dtype)
    except ConfigError:
        stored = [file.stat().st_size for file in local_checkpoint(spec.path).glob("*.bin")]
        if not stored:
            raise
        return sum(stored)


def adapter_bytes(spec: EngineSpec) -> int:
    """Return the bytes for the engine's adapters: their tensors, and a slot for each where the
    engine reserves slots (an empty one more on CPU). Return 0 without adapters."""
    if not spec.adapters:
        return 0
    adapters = [read_adapter(folder) for folder in spec.adapters]
    total = sum(adapter.bytes for adapter in adapters)
    if engine_facts(spec.name).reserves_gpu_share:
        rank = max(adapter.rank for adapter in adapters)
        slots = len(adapters) + (1 if spec.device == "cpu" else 0)
        size = 4 if spec.dtype == "float32" else 2
        total += slots * slot_bytes(spec.path, rank=rank, element_bytes=size)
    return total

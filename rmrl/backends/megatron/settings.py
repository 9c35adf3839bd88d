"""The Megatron backend's settings: which parallel sizes divide which, and settings that it does not
support."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator

from rmrl.config.schema import MegatronConfig, ModelConfig

_TENSOR = "tensor_model_parallel_size"
_PIPELINE = "pipeline_model_parallel_size"
_CONTEXT = "context_parallel_size"
_VIRTUAL = "virtual_pipeline_model_parallel_size"
_EXPERT = "expert_model_parallel_size"
PARALLEL_SIZES = (_TENSOR, _PIPELINE, _VIRTUAL, _CONTEXT, _EXPERT)
"""Entries of MegatronConfig that are sizes."""
REPLACEMENTS = {
    "fsdp_config.model_dtype": "megatron.dtype",
    "fsdp_config.param_dtype": "megatron.dtype",
    "fsdp_config.param_offload": "megatron.param_offload",
    "fsdp_config.optimizer_offload": "megatron.optimizer_offload",
    "fsdp_config.offload_policy": "megatron.param_offload",
    "fsdp_config.fsdp_size": f"megatron.{_TENSOR}",
    "fsdp_config.ulysses_sequence_parallel_size": f"megatron.{_CONTEXT}",
}
"""Settings of sharded training -> what to set in MegatronConfig instead."""
_OWN_ENTRY = {
    _TENSOR: _TENSOR,
    _PIPELINE: _PIPELINE,
    _VIRTUAL: _VIRTUAL,
    _CONTEXT: _CONTEXT,
    _EXPERT: _EXPERT,
    "sequence_parallel": "sequence_parallel",
    "use_distributed_optimizer": "use_distributed_optimizer",
    "bf16": "dtype",
    "fp16": "dtype",
    "params_dtype": "dtype",
    "pipeline_dtype": "dtype",
}
"""Names in megatron-core's configurations that have an entry of their own in MegatronConfig."""


def parallel_problems(megatron: MegatronConfig, world_size: int, *, section: str) -> list[str]:
    """Return the reasons why these sizes cannot place a model on `world_size` processes.

    `section`: the section that holds them, e.g. actor_rollout_ref.actor.
    """
    key = f"{section}.megatron"
    problems: list[str] = []
    for name in PARALLEL_SIZES:
        size = getattr(megatron, name)
        if size is not None and size < 1:
            problems.append(f"{key}.{name}={size}: give at least 1")
    if problems:
        return problems
    names = (_TENSOR, _PIPELINE, _CONTEXT)
    sizes = operator.attrgetter(*names)(megatron)
    model = math.prod(sizes)
    replicas = world_size // model
    expert = megatron.expert_model_parallel_size
    virtual = megatron.virtual_pipeline_model_parallel_size
    if world_size % model:
        product = " x ".join(map("{}={}".format, names, sizes))
        count = "trainer.nnodes x trainer.n_gpus_per_node"
        if key.startswith("critic."):
            count = "nnodes x n_gpus_per_node of critic.pool"
        problems.append(
            f"{key}: {product} = {model} does not divide the {world_size} training processes; lower"
            f" them until it does, or train in a multiple of {model} processes ({count})"
        )
    elif replicas % expert:
        problems.append(
            f"{key}.{_EXPERT}={expert} does not divide the {replicas} data-parallel"
            f" processes ({world_size} processes / {model} that share a model); use"
            f" {key}.{_EXPERT}={math.gcd(replicas, expert)}"
        )
    if (virtual or 1) > 1 and megatron.pipeline_model_parallel_size == 1:
        problems.append(
            f"{key}.{_VIRTUAL}={virtual} with {_PIPELINE}=1: there is no pipeline to interleave;"
            f" leave it out, or use {key}.{_PIPELINE}=2 or more"
        )
    return problems


def megatron_problems(megatron: MegatronConfig, world_size: int, *, section: str) -> list[str]:
    """Return the problems in section `megatron` for a model trained with strategy=megatron."""
    key = f"{section}.megatron"
    problems = parallel_problems(megatron, world_size, section=section)
    for overrides in ("override_transformer_config", "override_ddp_config"):
        for name in getattr(megatron, overrides):
            if name in _OWN_ENTRY:
                problems.append(f"{key}.{overrides}.{name}: use {key}.{_OWN_ENTRY[name]}")
    return problems


def model_problems(model: ModelConfig, *, section: str, key: str) -> Iterator[str]:
    """Yield the settings in `model` (at `key`) that strategy=megatron (at `section`) does not
    support."""
    if model.lora_rank:
        yield (
            f"{key}.lora_rank={model.lora_rank} with {section}.strategy=megatron: adapters train"
            " under fsdp2 and fsdp; use lora_rank=0, or strategy=fsdp2"
        )
    if model.enable_activation_offload:
        yield (
            f"{key}.enable_activation_offload=true has no effect with {section}.strategy=megatron;"
            " use megatron.override_transformer_config, or leave it out"
        )
    if model.attn_implementation not in ("auto", "sdpa"):
        yield (
            f"{key}.attn_implementation={model.attn_implementation} has no effect with"
            f" {section}.strategy=megatron, which computes attention by itself; leave it out"
        )

"""megatron-core's TransformerConfig and DistributedDataParallelConfig from an engine's settings."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from rmrl.backends.base import TrainSettings
from rmrl.backends.megatron.core import DistributedDataParallelConfig, TransformerConfig
from rmrl.backends.megatron.shape import Shape
from rmrl.backends.megatron.sizes import Sizes
from rmrl.errors import ConfigError
from rmrl.models.loading import torch_dtype
from rmrl.registry import did_you_mean

Config = TypeVar("Config", TransformerConfig, DistributedDataParallelConfig)


_PLAIN = "attention here is torch's scaled dot product over whole causal rows"
REFUSED = {
    **dict.fromkeys(
        ("apply_query_key_layer_scaling", "softmax_type", "window_attn_skip_freq", "window_size"),
        _PLAIN,
    ),
    # Weighted with the tokens of each micro-batch, where the losses are divided by the tokens of
    # the whole step.
    "moe_aux_loss_coeff": "its gradient would not be normalised as that of the other losses",
    "moe_z_loss_coeff": "its gradient would not be normalised as that of the other losses",
    "overlap_param_gather": (
        "weights would be published and saved before the last update is gathered"
    ),
    "use_megatron_fsdp": "strategy=fsdp2 does that",
}
"""Entries of megatron-core with which this backend would compute wrong numbers -> the reason."""

FREE = {
    # One kernel for SwiGLU, which keeps the matrix's output alone for its gradient: torch.compile
    # makes it on CUDA.
    "bias_activation_fusion": True,
    # Fusions that need another library.
    "bias_dropout_fusion": False,
    "masked_softmax_fusion": False,
    "apply_rope_fusion": False,
    "persist_layer_norm": False,
    "gradient_accumulation_fusion": False,
    "moe_permute_fusion": False,
    "moe_router_load_balancing_type": "none",
}
"""Entries of TransformerConfig that override_transformer_config may replace."""


def transformer_config(settings: TrainSettings, shape: Shape, sizes: Sizes) -> TransformerConfig:
    """megatron-core's config for the model. Raises ConfigError for an override_transformer_config
    entry that is unknown, refused, or set by the checkpoint or another key.
    """
    fixed = {**_of_shape(shape), **_of_sizes(sizes), **_of_dtype(settings)}
    free = dict(FREE)
    every = settings.model.recomputed_every
    if settings.role != "ref" and every:
        method, layers = "uniform", 1
        if every > 1:  # the first layers of each stage
            stage = shape.layers // (sizes.pipeline * (sizes.virtual or 1))
            method, layers = "block", -(-stage // every)
        free |= {
            "recompute_granularity": "full",
            "recompute_method": method,
            "recompute_num_layers": layers,
        }
    name = "override_transformer_config"
    return _overridden(TransformerConfig, fixed, free, settings, name)


def ddp_config(settings: TrainSettings) -> DistributedDataParallelConfig:
    """megatron-core's config for the gradient buffers. Raises ConfigError as `transformer_config`
    does."""
    fixed = {
        "use_distributed_optimizer": settings.trained.megatron.use_distributed_optimizer,
        "average_in_collective": False,
    }
    free = {"grad_reduce_in_fp32": True}
    return _overridden(DistributedDataParallelConfig, fixed, free, settings, "override_ddp_config")


def model_dtype(settings: TrainSettings) -> torch.dtype:
    """The dtype for weights and compute. Raises ConfigError for an unknown dtype and for
    float16."""
    key = f"{settings.section}.megatron.dtype"
    dtype = torch_dtype(settings.trained.megatron.dtype, key=key)
    if dtype is torch.float16:
        raise ConfigError(
            f"{key}=float16: gradients would need a loss scale, which this backend does not have;"
            " use bfloat16 or float32"
        )
    return dtype


def _of_shape(shape: Shape) -> dict[str, Any]:
    entries = {
        "num_layers": shape.layers,
        "hidden_size": shape.hidden,
        "ffn_hidden_size": shape.ffn,
        "num_attention_heads": shape.heads,
        "num_query_groups": shape.kv_heads,
        "kv_channels": shape.head_dim,
        "add_bias_linear": False,
        "add_qkv_bias": shape.qkv_bias,
        "qk_layernorm": shape.qk_norm,
        "normalization": "RMSNorm",
        "layernorm_epsilon": shape.eps,
        "gated_linear_unit": True,
        "activation_func": torch.nn.functional.silu,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }
    if shape.experts is not None:
        entries |= {
            "num_moe_experts": shape.experts.count,
            "moe_router_topk": shape.experts.chosen,
            "moe_ffn_hidden_size": shape.experts.ffn,
            # The softmax over the chosen experts alone is the softmax over all, divided by the sum
            # of the chosen.
            "moe_router_pre_softmax": not shape.experts.normalised,
            "moe_grouped_gemm": False,
        }
    return entries


def _of_sizes(sizes: Sizes) -> dict[str, Any]:
    interleaved = sizes.virtual is not None
    return {
        "tensor_model_parallel_size": sizes.tensor,
        "pipeline_model_parallel_size": sizes.pipeline,
        "virtual_pipeline_model_parallel_size": sizes.virtual,
        "context_parallel_size": sizes.context,
        "expert_model_parallel_size": sizes.expert,
        "expert_tensor_parallel_size": sizes.tensor,
        "sequence_parallel": sizes.sequence_parallel,
        # Interleaved stages: batched messages of two processes would mix forward with backward
        # ones, and so would the messages with the shapes of the next tensors. All micro-batches
        # have one shape there.
        "overlap_p2p_comm": interleaved,
        "batch_p2p_comm": not interleaved,
        "variable_seq_lengths": not interleaved,
        # The only dispatcher that allows variable lengths, which are refused otherwise, experts or
        # not.
        "moe_token_dispatcher_type": "alltoall",
        # Losses are sums that are normalised already: gradients are added up and never divided.
        "calculate_per_token_loss": True,
        # gloo sends from the tensor itself, after the call has returned.
        "deallocate_pipeline_outputs": torch.cuda.is_available(),
    }


def _of_dtype(settings: TrainSettings) -> dict[str, Any]:
    dtype = model_dtype(settings)
    return {
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "bf16": dtype is torch.bfloat16,
        # Weights are read from a checkpoint right after: nothing is drawn. But only an initialized
        # matrix is marked as cut over the tensor-parallel group, and the gradient norm leaves out
        # tensors without a mark in all processes but the first.
        "perform_initialization": True,
        "use_cpu_initialization": False,
        "init_method": _leave,
        "output_layer_init_method": _leave,
        "embedding_init_method": _leave,
    }


def _leave(weight: Tensor) -> Tensor:
    """An initialization that does nothing."""
    return weight


def _overridden(
    kind: type[Config],
    fixed: Mapping[str, Any],
    free: Mapping[str, Any],
    settings: TrainSettings,
    name: str,
) -> Config:
    entries: Mapping[str, Any] = getattr(settings.trained.megatron, name)
    key = f"{settings.section}.megatron.{name}"
    fields = [field.name for field in dataclasses.fields(kind)]
    problems: list[str] = []
    for entry in entries:
        if entry not in fields:
            problems.append(
                f"{key}.{entry}: megatron-core has no such entry{did_you_mean(entry, fields)}"
            )
        elif entry in REFUSED:
            problems.append(f"{key}.{entry} cannot be used: {REFUSED[entry]}; leave it out")
        elif entry in fixed:
            problems.append(
                f"{key}.{entry} follows from the model's config.json or from another key beside it,"
                " and would contradict it here; set that key, or model.override_config for what"
                " stands in config.json"
            )
    if problems:
        raise ConfigError(problems)
    try:
        with warnings.catch_warnings():
            # about one of its own defaults
            warnings.filterwarnings("ignore", message="full scope is deprecated")
            return kind(**{**fixed, **free, **entries})
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{key}: megatron-core refuses these entries ({error}); leave out what it names"
        ) from error

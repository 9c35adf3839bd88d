"""A model's layers: megatron-core's own, or TransformerEngine's where it is installed.

TransformerEngine's kernels compute a norm and the matrix behind it in one module, whose parameters
have other names (`mapping.FUSED_NORMS`). The core attention is this package's in both.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rmrl.backends.base import TrainSettings
from rmrl.backends.megatron.attention import SDPACoreAttention
from rmrl.backends.megatron.core import (
    IdentityOp,
    MLPSubmodules,
    ModuleSpec,
    TEGroupedMLP,
    TransformerBlockSubmodules,
    TransformerConfig,
    get_gpt_layer_local_spec,
    get_num_layers_to_build,
    transformer_engine_error,
)
from rmrl.backends.megatron.shape import Shape
from rmrl.errors import ConfigError, first_line

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedParts:
    """Module classes that stand in a layer instead of megatron-core's own."""

    norm: Any
    norm_and_column: Any
    """A norm and the column-parallel matrix behind it. Its norm's weight is `layer_norm_weight`."""
    row: Any
    grouped: tuple[Any, Any]
    """Column and row matrices for all experts in one call. (None, None) before version 1.9."""


def fused_parts(settings: TrainSettings) -> FusedParts | None:
    """TransformerEngine's parts where the settings want them and it can be used. None:
    megatron-core's own layers, with a warning where it is installed and its import fails.

    Raises ConfigError for megatron.transformer_engine=True where it cannot be used.
    """
    wanted = settings.trained.megatron.transformer_engine
    if wanted is False:
        return None
    engine: Any = None
    reason = ""
    failure = transformer_engine_error if settings.device == "cuda" else ""
    if not transformer_engine_error and importlib.util.find_spec("transformer_engine") is None:
        reason = "it is not installed: pip install transformer_engine[pytorch]"
    elif settings.device != "cuda":
        reason = "it has kernels for NVIDIA GPUs only, and this run trains on the CPU"
    elif not failure:
        try:
            engine = importlib.import_module("megatron.core.extensions.transformer_engine")
            if not engine.HAVE_TE:  # megatron-core has met an error that it does not show
                importlib.import_module("transformer_engine.pytorch.fp8")
                failure = "megatron-core cannot use this version of it"
        except (ImportError, OSError, RuntimeError, AssertionError, AttributeError) as error:
            failure = f"{type(error).__name__}: {first_line(error)}"
    if failure:
        reason = f"it is installed and cannot be used ({failure}): reinstall it for this torch"
    if wanted is True and reason:
        raise ConfigError(
            f"{settings.section}.megatron.transformer_engine=True: {reason}; or leave the entry out"
        )
    if failure:
        _log.warning(f"TransformerEngine: {reason}; megatron-core's own layers are used instead")
    if reason:
        return None
    _log.info(f"{settings.section}: layers of TransformerEngine")
    grouped = (engine.TEColumnParallelGroupedLinear, engine.TERowParallelGroupedLinear)
    return FusedParts(
        norm=engine.TENorm,
        norm_and_column=engine.TELayerNormColumnParallelLinear,
        row=engine.TERowParallelLinear,
        grouped=grouped,
    )


def layers_of_stage(
    shape: Shape, config: TransformerConfig, stage: int | None, *, fused: FusedParts | None
) -> Any:
    """The layers in one virtual stage here: TransformerBlockSubmodules."""
    layer = get_gpt_layer_local_spec(
        num_experts=None if shape.experts is None else shape.experts.count,
        moe_grouped_gemm=False,
        qk_layernorm=shape.qk_norm,
        normalization="RMSNorm",
    )
    parts: Any = layer.submodules
    attention = parts.self_attention.submodules
    # megatron-core's own attention and norms refuse sequence or context parallelism.
    attention.core_attention = SDPACoreAttention
    norm: Any = RMSNorm if fused is None else fused.norm
    parts.input_layernorm = parts.pre_mlp_layernorm = norm
    if shape.qk_norm:
        attention.q_layernorm = attention.k_layernorm = norm
    if fused is not None:
        parts.input_layernorm = IdentityOp
        attention.linear_qkv = fused.norm_and_column
        attention.linear_proj = fused.row
        if shape.experts is None:
            parts.pre_mlp_layernorm = IdentityOp
            parts.mlp.submodules.linear_fc1 = fused.norm_and_column
            parts.mlp.submodules.linear_fc2 = fused.row
        elif None not in fused.grouped:
            column, row = fused.grouped
            matrices = MLPSubmodules(linear_fc1=column, linear_fc2=row)
            parts.mlp.submodules.experts = ModuleSpec(TEGroupedMLP, submodules=matrices)
    count = get_num_layers_to_build(config, vp_stage=stage)
    return TransformerBlockSubmodules(layer_specs=[layer] * count, layer_norm=norm)


class RMSNorm(nn.Module):
    """Rounds like Hugging Face's norms: float32 inside, cast, times the weight. Its gradient is
    partial where a sequence is split."""

    def __init__(
        self, config: TransformerConfig, hidden_size: int, eps: float = 1e-6, **_: Any
    ) -> None:
        super().__init__()
        self.eps = eps
        device: Any = torch.cuda.current_device()  # the CPU inside `adapted()`
        ones = torch.ones(hidden_size, dtype=config.params_dtype, device=device)
        self.weight = nn.Parameter(ones)
        # megatron-core adds up the gradients of marked parameters over the tensor-parallel group.
        self.weight.sequence_parallel = config.sequence_parallel  # pyright: ignore[reportAttributeAccessIssue]

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        x32 = x.float()
        normalised = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * normalised.to(x.dtype)

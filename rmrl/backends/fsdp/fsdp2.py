"""strategy=fsdp2: `fully_shard`. Every parameter is its own DTensor, so that names, shapes and
checkpoints are the model's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from rmrl.backends.fsdp.initial import InitialWeights
from rmrl.backends.fsdp.layout import Layout, decoder_layers

ADAMW_STATE = ("exp_avg", "exp_avg_sq")


def shard(model: nn.Module, layout: Layout, weights: InitialWeights | None) -> nn.Module:
    """Shard `model` in place: each decoder layer is a unit, the rest (embedding, norm, head)
    belongs to the root.

    The root stays gathered between its forward and backward pass, since it is needed again at once.
    A process alone that computes in its parameters' dtype, on the device that holds them, has
    nothing to gather: the model stays as it is, and it is not copied (benchmarks/one_process).
    """
    if layout.mesh.size() == 1 and not layout.offloads and not _casts(model, layout):
        return _placed(model, layout)
    mixed_precision = MixedPrecisionPolicy(
        param_dtype=layout.param_dtype, reduce_dtype=layout.reduce_dtype
    )
    policy: dict[str, Any] = {
        "mesh": layout.mesh,
        "mp_policy": mixed_precision,
        "offload_policy": CPUOffloadPolicy() if layout.offloads else OffloadPolicy(),
    }
    for layer in decoder_layers(model):
        fully_shard(layer, reshard_after_forward=layout.reshard_after_forward, **policy)
    fully_shard(model, reshard_after_forward=False, **policy)
    if weights is not None:
        _fill(model, layout, weights)
        return model
    return _placed(model, layout)


def _casts(model: nn.Module, layout: Layout) -> bool:
    """Whether a parameter is used in another dtype than its own."""
    if layout.param_dtype is None:
        return False
    return any(parameter.dtype != layout.param_dtype for parameter in model.parameters())


def _placed(model: nn.Module, layout: Layout) -> nn.Module:
    """Move a loaded model's parameters home and its buffers to the device."""
    model.to(layout.home)
    for buffer in model.buffers():
        buffer.data = buffer.data.to(layout.device)
    return model


@torch.no_grad()
def _fill(model: nn.Module, layout: Layout, weights: InitialWeights) -> None:
    """Allocate a storageless model's shards and fill them with `weights`."""
    model.to_empty(device=layout.home)
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, DTensor)
        whole = weights.whole(name, layout.device)
        # Without a source rank each process cuts its own piece.
        piece = distribute_tensor(
            whole, parameter.device_mesh, parameter.placements, src_data_rank=None
        )
        parameter.to_local().copy_(piece.to_local())
    weights.fill_held(model, layout.device)


def free_gathered(model: nn.Module) -> None:
    """Free the gathered root; afterwards `parameters()` are shards."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def shards(model: nn.Module) -> dict[str, Tensor]:
    """The parameters' own storage, by name."""
    free_gathered(model)
    return {name: parameter.data for name, parameter in model.named_parameters()}


def set_shards(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Do nothing: `shards` are the parameters."""
    del model, tensors


def optimizer_shards(model: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, Tensor]:
    """AdamW's own state by kind and parameter name; zeros for an optimizer that has not stepped
    yet."""
    free_gathered(model)
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        state = optimizer.state[parameter]
        if not state:
            # Fused kernels need the step counter beside the parameter, the others on CPU.
            device = parameter.device if optimizer.defaults["fused"] else torch.device("cpu")
            state["step"] = torch.zeros((), dtype=torch.float32, device=device)
            for key in ADAMW_STATE:
                state[key] = torch.zeros_like(parameter)
        for key in ("step", *ADAMW_STATE):
            tensors[f"{key}.{name}"] = state[key]
    return tensors


def set_optimizer_shards(
    model: nn.Module, optimizer: torch.optim.AdamW, tensors: Mapping[str, Tensor]
) -> None:
    """Do nothing: `optimizer_shards` are the state."""
    del model, optimizer, tensors


def gradient_norm(model: nn.Module) -> Tensor:
    """Norm over all processes' gradients."""
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    if isinstance(norm, DTensor):
        return norm.full_tensor()
    return norm

"""strategy=fsdp: `FullyShardedDataParallel`. Each unit's parameters lie in one flat tensor, and
every process has a piece.

`use_orig_params` keeps parameter objects, each a view into the local piece: an optimizer may refer
to them, but their names are prefixed and their shapes are the pieces'. The rest of the trainer
therefore reads parameters through this file.
"""

# pyright: basic
# The flat tensors are reached through torch's own, untyped handles.

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import (
    CPUOffload,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
)
from torch.distributed.fsdp._runtime_utils import _lazy_init, _reshard
from torch.distributed.fsdp.wrap import CustomPolicy

from rmrl.backends.fsdp.initial import InitialWeights
from rmrl.backends.fsdp.layout import Layout, decoder_layers
from rmrl.errors import ConfigError

PREFIX = "_fsdp_wrapped_module."


def shard(model: nn.Module, layout: Layout, weights: InitialWeights | None) -> nn.Module:
    """Wrap each decoder layer and the rest (embedding, norm, head). Returns the wrapped root. As in
    fsdp2 the root stays gathered between its forward and backward pass."""
    layers = set(decoder_layers(model))
    fill = None
    if weights is not None:
        weights.fill_held(model, layout.device)
        fill = _filler(model, weights, layout.device)
    dtypes = {str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()}
    if len(dtypes) > 1:
        raise ConfigError(
            "strategy=fsdp keeps a layer's parameters in one tensor, and this model's are"
            f" {' and '.join(sorted(dtypes))}: set strategy=fsdp2, or"
            " fsdp_config.model_dtype=float32"
        )
    with _quietly():
        root = FullyShardedDataParallel(
            model,
            auto_wrap_policy=CustomPolicy(lambda module: module in layers),
            cpu_offload=CPUOffload(offload_params=layout.offloads),
            mixed_precision=MixedPrecision(
                param_dtype=layout.param_dtype, reduce_dtype=layout.reduce_dtype
            ),
            param_init_fn=fill,
            device_id=layout.device,
            use_orig_params=True,
            **_sharding(layout),
        )
    frozen = not all(parameter.requires_grad for parameter in root.parameters())
    if root.sharding_strategy is ShardingStrategy.NO_SHARD and frozen:
        # Unsharded units without a trained parameter are not put back after a backward pass, and
        # torch takes that for a change of theirs.
        root.register_forward_pre_hook(lambda module, _: free_gathered(module))
    return root


def _sharding(layout: Layout) -> dict[str, Any]:
    """Strategy and processes. Shard groups with one process are only replicas, which `HYBRID_SHARD`
    would leave unsummed."""
    mesh = layout.mesh
    if mesh.size(mesh.ndim - 1) == 1:
        return {"sharding_strategy": ShardingStrategy.NO_SHARD, "process_group": dist.group.WORLD}
    if mesh.ndim == 1 and layout.reshard_after_forward:
        strategy = ShardingStrategy.FULL_SHARD
    elif mesh.ndim == 1:
        strategy = ShardingStrategy.SHARD_GRAD_OP
    elif layout.reshard_after_forward:
        strategy = ShardingStrategy.HYBRID_SHARD
    else:
        strategy = ShardingStrategy._HYBRID_SHARD_ZERO2
    return {"sharding_strategy": strategy, "device_mesh": mesh}


def _filler(
    model: nn.Module, weights: InitialWeights, device: torch.device
) -> Callable[[nn.Module], None]:
    """The function that sets a module's whole parameters before its unit is sharded. Tied ones
    stay tied."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    filled: dict[nn.Parameter, nn.Parameter] = {}

    def fill(module: nn.Module) -> None:
        for key, parameter in module._parameters.items():
            if parameter is None or not parameter.is_meta:
                continue
            if parameter not in filled:
                whole = weights.whole(names[parameter], device)
                filled[parameter] = nn.Parameter(whole, requires_grad=parameter.requires_grad)
            module._parameters[key] = filled[parameter]

    return fill


def free_gathered(model: nn.Module) -> None:
    """Free what a forward pass without a backward pass left gathered; afterwards parameters are
    views into the pieces."""
    for unit in _units(model):
        if unit._handle is not None:
            _reshard(unit, unit._handle, unit._handle.uses_sharded_strategy)


def _units(model: nn.Module) -> list[FullyShardedDataParallel]:
    _lazy_init(model, model)
    return FullyShardedDataParallel.fsdp_modules(model)


def shards(model: nn.Module) -> dict[str, Tensor]:
    """Copies of this process's parameter parts, cut as fsdp2 cuts them."""
    free_gathered(model)
    with _quietly():
        state: Any = get_model_state_dict(model)
    return {name: state[name] for name in _names(model)}


def _names(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name.replace(PREFIX, ""): parameter for name, parameter in model.named_parameters()}


def set_shards(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Write `shards`' tensors, filled anew, to the parameters; parameters without one keep their
    values."""
    names = {id(parameter): name for name, parameter in _names(model).items()}
    with _quietly():
        state: Any = get_model_state_dict(model)
        # The state dict has tied parameters under each of their names, `tensors` under the first.
        for alias, parameter in model.named_parameters(remove_duplicate=False):
            name = names[id(parameter)]
            if name in tensors:
                state[alias.replace(PREFIX, "")].copy_(tensors[name])
        set_model_state_dict(model, state)


def optimizer_shards(model: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, Tensor]:
    """AdamW's state, copied, by kind and parameter name."""
    tensors: dict[str, Tensor] = {}
    for name, state in _optimizer_state(model, optimizer)["state"].items():
        for key, value in state.items():
            tensors[f"{key}.{name}"] = value
    return tensors


def _optimizer_state(model: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, Any]:
    """The optimizer's state as torch's state dict.

    For an optimizer that has not stepped torch makes the state by a step that changes nothing but
    its counter, which is set back here.
    """
    free_gathered(model)
    fresh = not optimizer.state
    with _quietly():
        state: Any = get_optimizer_state_dict(model, optimizer)
    if fresh:
        for one in (*optimizer.state.values(), *state["state"].values()):
            one["step"].zero_()
    return state


def set_optimizer_shards(
    model: nn.Module, optimizer: torch.optim.AdamW, tensors: Mapping[str, Tensor]
) -> None:
    """Write `optimizer_shards`' tensors, filled anew, to the optimizer."""
    state = _optimizer_state(model, optimizer)
    for name, one in state["state"].items():
        state["state"][name] = {key: tensors[f"{key}.{name}"] for key in one}
    with _quietly():
        set_optimizer_state_dict(model, optimizer, state)


def gradient_norm(model: nn.Module) -> Tensor:
    """Norm over all processes' gradients: each has pieces, replicas have the same ones."""
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    if model.sharding_strategy is ShardingStrategy.NO_SHARD:
        return norm
    device: Any = model.compute_device
    square = norm.to(device, torch.float32).square()
    dist.all_reduce(square, group=model.process_group)
    return square.sqrt()


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress torch's warnings on intended use: NO_SHARD, adapters beside frozen weights, names
    that torch itself uses."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", message=".*NO_SHARD.*")
        warnings.filterwarnings(
            "ignore", message=".*both parameters with requires_grad.*", category=UserWarning
        )
        yield

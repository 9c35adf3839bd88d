"""The compatibility layer over torch.distributed: what differs between sharding strategies behind
the same calls.

Nothing above this file depends on a model's strategy. The calls whose names may change with torch
are in rmrl.backends.fsdp.fsdp1 and .fsdp2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Shard

from rmrl.backends.fsdp import fsdp1, fsdp2
from rmrl.backends.fsdp.backend import mesh_problem
from rmrl.backends.fsdp.initial import InitialWeights
from rmrl.backends.fsdp.layout import Layout
from rmrl.errors import ConfigError
from rmrl.inference.weights.parts import Parts
from rmrl.models.stored_tensors import stored_buffers


def device_mesh(device: str, fsdp_size: int) -> DeviceMesh:
    """All processes in one shard group, or replicated shard groups with `fsdp_size` processes each.
    Raises ConfigError if it does not divide."""
    world = dist.get_world_size()
    if fsdp_size in (-1, world):
        return init_device_mesh(device, (world,), mesh_dim_names=("shard",))
    problem = mesh_problem("actor_rollout_ref.actor", fsdp_size, world)
    if problem:
        raise ConfigError(problem)
    return init_device_mesh(
        device, (world // fsdp_size, fsdp_size), mesh_dim_names=("replicate", "shard")
    )


class Strategy(Protocol):
    """Offered by rmrl.backends.fsdp.fsdp1 and .fsdp2 alike: all that differs between the two.

    Every call but `free_gathered` is made in all processes together.
    """

    def shard(
        self, model: nn.Module, layout: Layout, weights: InitialWeights | None
    ) -> nn.Module: ...

    def free_gathered(self, model: nn.Module) -> None: ...

    def shards(self, model: nn.Module) -> dict[str, Tensor]: ...

    def set_shards(self, model: nn.Module, tensors: Mapping[str, Tensor]) -> None: ...

    def optimizer_shards(
        self, model: nn.Module, optimizer: torch.optim.AdamW
    ) -> dict[str, Tensor]: ...

    def set_optimizer_shards(
        self, model: nn.Module, optimizer: torch.optim.AdamW, tensors: Mapping[str, Tensor]
    ) -> None: ...

    def gradient_norm(self, model: nn.Module) -> Tensor: ...


STRATEGIES: dict[str, Strategy] = {"fsdp2": fsdp2, "fsdp": fsdp1}


def strategy_of(model: nn.Module) -> Strategy:
    """The strategy that sharded `model`."""
    return fsdp1 if isinstance(model, FullyShardedDataParallel) else fsdp2


def shard(
    model: nn.Module, layout: Layout, *, strategy: str, weights: InitialWeights | None = None
) -> nn.Module:
    """Shard `model` over the layout's processes and move it to its device. Returns the sharded
    model, which may be another object.

    `weights`: fill a model that has none (see rmrl.backends.fsdp.initial). Parameters keep their
    dtype as master weights. The root stays gathered between its forward and backward pass;
    `free_gathered` frees it where no backward pass follows.
    """
    if weights is not None:
        weights.adopt(model)
    parameters = model.named_parameters()
    headers = {name: (whole.dtype, tuple(whole.shape)) for name, whole in parameters}
    sharded = STRATEGIES[strategy].shard(model, layout, weights)
    setattr(sharded, _HEADERS, headers)
    return sharded


_HEADERS = "whole_parameter_headers"


def headers(model: nn.Module) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Every whole parameter's (dtype, shape) by its name before sharding, tied ones once; needs no
    other process."""
    return getattr(model, _HEADERS)


def shards(model: nn.Module) -> dict[str, Tensor]:
    """This process's part in every parameter (a DTensor, or a plain tensor where nothing is
    sharded) by its name before sharding, tied ones once; to read from. All processes must call it
    together."""
    return strategy_of(model).shards(model)


def buffers(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Every buffer that checkpoint files hold, by its name before sharding."""
    return [(name.replace(fsdp1.PREFIX, ""), buffer) for name, buffer in stored_buffers(model)]


def trained_names(model: nn.Module) -> set[str]:
    """Which parameters train, by name. All names if the model is frozen."""
    names: set[str] = set()
    trained: set[str] = set()
    for wrapped_name, parameter in model.named_parameters():
        name = wrapped_name.replace(fsdp1.PREFIX, "")
        names.add(name)
        if parameter.requires_grad:
            trained.add(name)
    return trained or names


def full_tensor(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The whole tensor on every process, cast to `dtype` before it is gathered. All processes must
    call this together."""
    local = tensor.detach()
    if dtype is not None and tensor.is_floating_point():
        local = local.to(dtype)
    if isinstance(local, DTensor):
        # Shards in host memory (offload_policy) would travel through gloo, and NCCL is far faster.
        on_device = local.to(local.device_mesh.device_type)
        assert isinstance(on_device, DTensor)
        return on_device.full_tensor()
    return local


def parts_of(tensor: Tensor) -> Parts | None:
    """Return how the processes hold a tensor in equal parts. None: the parts differ in size, or
    every process has the whole."""
    if not isinstance(tensor, DTensor):
        return None
    grid = tuple(tensor.device_mesh.shape)
    cuts: list[int | None] = []
    for size, placement in zip(grid, tensor.placements, strict=True):
        cut = placement.dim if isinstance(placement, Shard) else None
        if cut is not None and tensor.shape[cut] % size:
            return None
        cuts.append(cut)
    if all(cut is None for cut in cuts):
        return None
    return Parts(grid, tuple(cuts))


def local_part(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return this process's part on the device, cast to `dtype`."""
    assert isinstance(tensor, DTensor)
    local = tensor.to_local().detach()
    if dtype is not None and tensor.is_floating_point():
        local = local.to(dtype)
    return local.to(tensor.device_mesh.device_type)


def full_tensors(
    named: Iterable[tuple[str, Tensor]], dtype: torch.dtype | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Gather one tensor after another, so that memory holds one whole tensor at a time."""
    for name, tensor in named:
        yield name, full_tensor(tensor, dtype)


def free_gathered(model: nn.Module) -> None:
    """Return to shards everywhere: frees what a forward pass without a backward pass left
    gathered."""
    strategy_of(model).free_gathered(model)


def clip_gradients(model: nn.Module, max_norm: float) -> float:
    """Scale the gradients to a global norm at most `max_norm` (0 or less: leave them) and return
    the norm before; may be nan or inf.

    Gradients whose norm is not finite are left unchanged.
    """
    norm = strategy_of(model).gradient_norm(model)
    number = norm.item()  # the only wait of the host for the device in a mini-batch
    if max_norm > 0 and math.isfinite(number):
        nn.utils.clip_grads_with_norm_(list(model.parameters()), max_norm, norm)
    return number


def settle() -> None:
    """Wait for copies under way and release unused device memory to the device's other processes
    (CUDA)."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()

"""How a model is cut over processes: what both sharding strategies are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the shards lie and in which dtypes they work."""

    mesh: DeviceMesh
    """One dimension: all processes shard. Two: replicas of shard groups."""
    device: torch.device
    """Where this process computes."""
    param_dtype: torch.dtype | None
    """Of compute; None: that of the parameters, which stay as they are (master weights)."""
    reduce_dtype: torch.dtype
    """In which gradients are summed over processes."""
    reshard_after_forward: bool = True
    """Free a layer's gathered parameters after its forward pass."""
    offload: bool = False
    """Shards, gradients and optimizer state live in host memory, each layer visits the device to
    compute; nothing on CPU."""

    @property
    def home(self) -> torch.device:
        """Where the shards lie between passes."""
        return torch.device("cpu") if self.offload else self.device

    @property
    def offloads(self) -> bool:
        """Whether host and device memory are two things here, and the first is asked for."""
        return self.offload and self.device.type != "cpu"


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The repeated blocks: the longest list of modules that is not inside another (experts are
    inside their layer)."""
    return list(max(_outer_lists(model), key=len, default=nn.ModuleList()))


def _outer_lists(module: nn.Module) -> Iterator[nn.ModuleList]:
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield child
        else:
            yield from _outer_lists(child)

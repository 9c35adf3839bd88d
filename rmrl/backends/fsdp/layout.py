"""How a model is laid out over processes, which both sharding strategies read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The shards' devices and dtypes."""

    mesh: DeviceMesh
    """One dimension: all processes shard. Two: replicas of shard groups."""
    device: torch.device
    """Compute device of this process."""
    param_dtype: torch.dtype | None
    """Compute dtype. None: that of the parameters, which keep theirs (master weights)."""
    reduce_dtype: torch.dtype
    """Dtype in which gradients are summed over processes."""
    reshard_after_forward: bool = True
    """Free a layer's gathered parameters after its forward pass."""
    offload: bool = False
    """Shards, gradients and optimizer state live in host memory, each layer is copied to the device
    to compute; no effect on CPU."""

    @property
    def home(self) -> torch.device:
        """The shards' device between passes."""
        if self.offload:
            return torch.device("cpu")
        return self.device

    @property
    def offloads(self) -> bool:
        """True if offloading is on and host and device memory differ."""
        return self.offload and self.device.type != "cpu"


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The repeated blocks: the longest module list that is not inside another (experts are inside
    their layer)."""
    return list(max(_outer_lists(model), key=len, default=nn.ModuleList()))


def _outer_lists(module: nn.Module) -> Iterator[nn.ModuleList]:
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield child
        else:
            yield from _outer_lists(child)

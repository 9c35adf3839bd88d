"""An FSDP model's parts that leave the device between training phases."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from rmrl.backends.fsdp import compat
from rmrl.backends.offload import Offloader
from rmrl.config.schema import FSDPConfig


def model_offloader(model: nn.Module, fsdp: FSDPConfig, device: torch.device) -> Offloader | None:
    """Return the parameter shards' offloader where the settings enable it. There are no gradients
    between steps.

    None with offload_policy: the state is in host memory anyway.
    """
    if not fsdp.param_offload or fsdp.offload_policy:
        return None
    return Offloader(lambda: shards(model), device)


def optimizer_offloader(
    optimizer: torch.optim.Optimizer | None, fsdp: FSDPConfig, device: torch.device
) -> Offloader | None:
    """Return the offloader for the optimizer's averages where the settings enable it; as above."""
    if optimizer is None or not fsdp.optimizer_offload or fsdp.offload_policy:
        return None
    return Offloader(lambda: averages(optimizer), device)


def shards(model: nn.Module) -> Iterator[Tensor]:
    """Yield this process's part in every parameter; what is gathered is freed first."""
    compat.free_gathered(model)
    for parameter in model.parameters():
        yield _local(parameter.data)


def averages(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Yield the optimizer state's tensors, but for its step counters."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor) and value.ndim > 0:
                yield _local(value)


def _local(tensor: Tensor) -> Tensor:
    if isinstance(tensor, DTensor):
        return tensor.to_local()
    return tensor

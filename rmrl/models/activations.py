"""Activations in host memory between the forward and the backward pass.

With gradient checkpointing a decoder layer keeps nothing but its input. These are what is moved:
tokens x hidden size per layer. Copies go through the compute stream, which orders them without
waiting for the device.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

SMALLEST_BYTES = 2**20
"""Smaller tensors stay on the device."""

Saved = tuple[torch.device, Tensor] | Tensor
"""A tensor that stays, or the device to return to and the copy in host memory."""


def offloaded(
    *, device_type: str = "cuda", smallest_bytes: int = SMALLEST_BYTES
) -> AbstractContextManager[None]:
    """Keep what autograd saves inside the block in host memory, as far as it is on a `device_type`
    device; parameters stay."""

    def pack(tensor: Tensor) -> Saved:
        stays = isinstance(tensor, nn.Parameter) or tensor.nbytes < smallest_bytes
        if stays or tensor.device.type != device_type:
            return tensor
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        host.copy_(tensor, non_blocking=True)
        return tensor.device, host

    def unpack(saved: Saved) -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        device, host = saved
        return host.to(device, non_blocking=True)

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

"""Response tokens that processes compute together because they share rows.

Shapes: N response tokens in all rows, flat    n those that this process computes
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor


def own_tokens(
    positions_N: np.ndarray, targets_N: np.ndarray, local: np.ndarray | None, total: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the positions [n] among those in this process, their targets [n], and their places
    among all N. `local`: this process's positions in a sequence that has `total` tokens. None: it
    has them all.

    A process without any token has one all the same, without a place: it must take part in the
    backward pass.
    """
    if local is None:
        return positions_N, targets_N, None
    place_among_own = np.full(total, -1, np.int64)
    place_among_own[local] = np.arange(len(local))
    places_N = place_among_own[positions_N]
    index_n = np.flatnonzero(places_N >= 0)
    if not len(index_n):
        return np.zeros(1, np.int64), np.zeros(1, np.int64), index_n
    return places_N[index_n], targets_N[index_n], index_n


def of_all(own_n: Tensor, index_n: Tensor | None, *, size: int, group: Any) -> Tensor:
    """Return one number per response token in whole rows [N = `size`], combined from `group`, whose
    processes share them. `index_n`: places that this process computes. None: all."""
    if index_n is None:
        return own_n
    return _Together.apply(own_n[: len(index_n)], index_n, size, group)


class _Together(torch.autograd.Function):
    """Add up what processes have at their places. Every process continues with the same N numbers,
    so its own gradient is whole."""

    @staticmethod
    def forward(
        ctx: Any, own_n: Tensor, index_n: Tensor, size: int, group: dist.ProcessGroup
    ) -> Tensor:
        ctx.save_for_backward(index_n)
        all_N = own_n.new_zeros(size)
        all_N[index_n] = own_n
        dist.all_reduce(all_N, group=group)
        return all_N

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (index_n,) = ctx.saved_tensors
        return grad_N[index_n], None, None, None

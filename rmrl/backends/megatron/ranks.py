"""Ranks and groups of this process among those that share a model's weights. Experts have
tensor-parallel groups of their own."""

from __future__ import annotations

from typing import cast

import torch.distributed as dist

from rmrl.backends.megatron.core import parallel_state
from rmrl.backends.megatron.mapping import Entry
from rmrl.backends.megatron.shape import Shape


def tensor_group(entry: Entry) -> dist.ProcessGroup:
    """The processes that hold the shares of this parameter."""
    if entry.expert is None:
        return cast(dist.ProcessGroup, parallel_state.get_tensor_model_parallel_group())
    return cast(dist.ProcessGroup, parallel_state.get_expert_tensor_parallel_group())


def tensor_rank(entry: Entry) -> tuple[int, int]:
    """(rank, size) of this process in `tensor_group`."""
    group = tensor_group(entry)
    return dist.get_rank(group), dist.get_world_size(group)


def pipeline_group() -> dist.ProcessGroup:
    """One process of each pipeline stage."""
    return cast(dist.ProcessGroup, parallel_state.get_pipeline_model_parallel_group())


def expert_group() -> dist.ProcessGroup:
    """The processes of this stage that hold different experts."""
    return cast(dist.ProcessGroup, parallel_state.get_expert_model_parallel_group())


def experts_here(shape: Shape) -> range:
    """Numbers of the experts that each layer of this process has, empty for a dense model."""
    total = shape.experts.count if shape.experts else 0
    count = total // dist.get_world_size(expert_group())
    first = count * dist.get_rank(expert_group())
    return range(first, first + count)

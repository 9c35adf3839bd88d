"""This process's ranks and groups among all that share a model's weights. Experts have their own
tensor-parallel groups."""

from __future__ import annotations

from typing import cast

import torch.distributed as dist

from rmrl.backends.megatron.core import parallel_state
from rmrl.backends.megatron.mapping import Entry
from rmrl.backends.megatron.shape import Shape


def tensor_group(entry: Entry) -> dist.ProcessGroup:
    """The processes that hold this parameter's shares."""
    if entry.expert is None:
        return cast(dist.ProcessGroup, parallel_state.get_tensor_model_parallel_group())
    return cast(dist.ProcessGroup, parallel_state.get_expert_tensor_parallel_group())


def tensor_rank(entry: Entry) -> tuple[int, int]:
    """This process's (rank, size) in `tensor_group`."""
    group = tensor_group(entry)
    return dist.get_rank(group), dist.get_world_size(group)


def pipeline_group() -> dist.ProcessGroup:
    """One process from each pipeline stage."""
    return cast(dist.ProcessGroup, parallel_state.get_pipeline_model_parallel_group())


def expert_group() -> dist.ProcessGroup:
    """This stage's processes that hold different experts."""
    return cast(dist.ProcessGroup, parallel_state.get_expert_model_parallel_group())


def experts_here(shape: Shape) -> range:
    """Which experts each layer in this process has, as numbers, empty for a dense model."""
    total = shape.experts.count if shape.experts else 0
    count = total // dist.get_world_size(expert_group())
    first = count * dist.get_rank(expert_group())
    return range(first, first + count)

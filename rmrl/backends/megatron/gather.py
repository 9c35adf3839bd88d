"""Gather whole tensors under Hugging Face names from a model whose shares lie on many processes:
for publishing and for export.

One parameter is sent at a time, already cast: from its expert-parallel rank to the stage's others,
from its stage to the other stages, and then the tensor-parallel ranks combine their shares. So a
process holds one parameter's shares and the tensor built from them beside its own weights, and
never a second model.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from rmrl.backends.megatron.mapping import Entry, entries, joined, named, share_shape
from rmrl.backends.megatron.model import MegatronModel
from rmrl.backends.megatron.ranks import (
    expert_group,
    experts_here,
    pipeline_group,
    tensor_group,
    tensor_rank,
)


def manifest(
    model: MegatronModel, dtype: torch.dtype | None
) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
    """(Hugging Face name, dtype, shape) for each tensor in `whole_tensors`, in order; needs no
    other process."""
    dtype = dtype or model.config.params_dtype
    tensors: list[tuple[str, torch.dtype, tuple[int, ...]]] = []
    for entry in _published(model):
        for name, shape in zip(entry.hf, entry.shapes, strict=True):
            tensors.append((name, dtype, shape))
    return tensors


@torch.no_grad()
def whole_tensors(model: MegatronModel, dtype: torch.dtype | None) -> Iterator[tuple[str, Tensor]]:
    """Yield (Hugging Face name, tensor) one at a time, on the model's device, in `dtype` (None: the
    model's compute dtype); tied weights once.

    A collective: every process in the group must run it to its end, and every process receives
    every tensor. A tensor may be a view into a parameter: it is valid until the next optimizer
    step.
    """
    dtype = dtype or model.config.params_dtype
    local = dict(named(model.chunks, experts_here(model.shape).start))
    table = _published(model)
    # megatron-core decides which layers a stage has, so the processes exchange their own.
    own_stage = dist.get_rank(pipeline_group())
    own_stages = [own_stage if entry.name in local else -1 for entry in table]
    reduced = torch.tensor(own_stages, device=model.device)
    for group in (expert_group(), pipeline_group()):
        dist.all_reduce(reduced, op=dist.ReduceOp.MAX, group=group)
    stages = reduced.tolist()
    assert min(stages) >= 0, f"no process holds {table[stages.index(-1)].name}"
    for entry, stage in zip(table, stages, strict=True):
        # this tensor-parallel rank's share of the parameter, sent from the process that has it
        if entry.name in local:
            share = local[entry.name].detach().to(dtype)
        else:
            _, ranks = tensor_rank(entry)
            share = torch.empty(share_shape(entry, ranks), dtype=dtype, device=model.device)
        if entry.expert is not None and own_stage == stage:
            _broadcast(share, entry.expert // len(experts_here(model.shape)), expert_group())
        _broadcast(share, stage, pipeline_group())
        yield from zip(entry.hf, joined(entry, _shares(entry, share)), strict=True)


def _published(model: MegatronModel) -> list[Entry]:
    return [entry for entry in entries(model.shape, model.role) if not entry.tied]


def _broadcast(tensor: Tensor, source: int, group: dist.ProcessGroup) -> None:
    if dist.get_world_size(group) > 1:
        dist.broadcast(tensor, group=group, group_src=source)


def _shares(entry: Entry, share: Tensor) -> list[Tensor]:
    """Gather all tensor-parallel ranks' shares."""
    _, ranks = tensor_rank(entry)
    if ranks == 1 or entry.kind == "whole":
        return [share]
    shares = share.new_empty(ranks * share.shape[0], *share.shape[1:])
    dist.all_gather_into_tensor(shares, share, group=tensor_group(entry))
    if entry.stacked:
        return [shares]  # a whole one needs no second copy
    return list(shares.chunk(ranks))

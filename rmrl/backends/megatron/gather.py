"""Whole tensors under Hugging Face names out of a model whose shares lie on many processes: for
publishing and for export.

One parameter travels at a time, already cast: from the expert-parallel rank that holds it to the
others of its stage, from its stage to the other stages, and then the tensor-parallel ranks put
their shares together. So a process holds the shares of one parameter and the tensor made of them
beside its own weights, and never a copy of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    """(Hugging Face name, dtype, shape) of what `whole_tensors` yields, in its order; needs no
    other process."""
    dtype = dtype or model.config.params_dtype
    return [
        (name, dtype, shape)
        for entry in _published(model)
        for name, shape in zip(entry.hf, entry.shapes, strict=True)
    ]


@torch.no_grad()
def whole_tensors(model: MegatronModel, dtype: torch.dtype | None) -> Iterator[tuple[str, Tensor]]:
    """(Hugging Face name, tensor) one at a time, on the model's device, in `dtype` (None: as the
    model computes); tied weights once.

    A collective: every process of the group must run it to its end, and every process sees every
    tensor. A tensor may be a view of a
    parameter: it is valid until the next optimizer step.
    """
    dtype = dtype or model.config.params_dtype
    held = dict(named(model.chunks, experts_here(model.shape).start))
    table = _published(model)
    stages = _stages(table, held, model.device)
    for entry, stage in zip(table, stages, strict=True):
        share = _share(model, entry, stage, held, dtype)
        yield from zip(entry.hf, joined(entry, _shares(entry, share)), strict=True)


def _published(model: MegatronModel) -> list[Entry]:
    return [entry for entry in entries(model.shape, model.role) if not entry.tied]


def _stages(table: list[Entry], held: Mapping[str, Tensor], device: torch.device) -> list[int]:
    """The pipeline stage of each entry. Asked and not computed: which layers a stage has is
    megatron-core's affair."""
    stage = dist.get_rank(pipeline_group())
    stages = torch.tensor([stage if entry.name in held else -1 for entry in table], device=device)
    for group in (expert_group(), pipeline_group()):
        dist.all_reduce(stages, op=dist.ReduceOp.MAX, group=group)
    found = stages.tolist()
    assert min(found) >= 0, f"no process holds {table[found.index(-1)].name}"
    return found


def _share(
    model: MegatronModel, entry: Entry, stage: int, held: Mapping[str, Tensor], dtype: torch.dtype
) -> Tensor:
    """This tensor-parallel rank's share of the parameter, brought from where it is."""
    if entry.name in held:
        share = held[entry.name].detach().to(dtype)
    else:
        share = torch.empty(
            share_shape(entry, tensor_rank(entry)[1]), dtype=dtype, device=model.device
        )
    if entry.expert is not None and dist.get_rank(pipeline_group()) == stage:
        _broadcast(share, entry.expert // len(experts_here(model.shape)), expert_group())
    _broadcast(share, stage, pipeline_group())
    return share


def _broadcast(tensor: Tensor, source: int, group: dist.ProcessGroup) -> None:
    if dist.get_world_size(group) > 1:
        dist.broadcast(tensor, group=group, group_src=source)


def _shares(entry: Entry, share: Tensor) -> list[Tensor]:
    """The shares of all tensor-parallel ranks."""
    ranks = tensor_rank(entry)[1]
    if ranks == 1 or entry.kind == "whole":
        return [share]
    shares = share.new_empty(ranks * share.shape[0], *share.shape[1:])
    dist.all_gather_into_tensor(shares, share, group=tensor_group(entry))
    return (
        [shares] if entry.stacked else list(shares.chunk(ranks))
    )  # a whole one needs no second copy

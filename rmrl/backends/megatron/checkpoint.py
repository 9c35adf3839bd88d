"""A Megatron model's checkpoints: parameters and optimizer state as megatron-core's
dist_checkpointing shards them, in safetensors files.

megatron-core defines where a process's parameter lies in the whole one (`sharded_state_dict`). Its
`save`, `load` and storage are not used: they pickle a common state, and some versions unpickle it
whatever the strategy. Nor is its optimizer's state dict. Without TransformerEngine that cannot be
loaded (a fresh optimizer has no state, and "step" is looked for among the tensors) or has one step
counter for all parameters, and its layout-free form gathers a whole share in one process. Instead

- every process writes its own numbers, for the distributed optimizer the ranges of its flat shard,
  as boxes in the whole tensor (see rmrl.backends.storage). So a checkpoint loads under any tensor,
  pipeline, expert, virtual and data-parallel sizes, with the distributed optimizer or without, and
  in any dtype, and no process ever has more than its own share;
- a parameter is stored once, in the precision in which it is trained: float32 master weights where
  the optimizer keeps them. Loading rounds them as the optimizer does, so that bfloat16 weights come
  back exactly;
- names come from rmrl.backends.megatron.mapping. A vocabulary is stored without its rows of
  padding, tied weights once.

model.<name>                             parameters
optimizer.exp_avg[_sq].<name>            AdamW's averages
optimizer.step                           optimizer steps so far, [1]
shape                                    rmrl.backends.megatron.shape.Shape as JSON, in bytes, for
                                         the export without megatron
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rmrl.backends.megatron.core import dist_checkpointing, parallel_state
from rmrl.backends.megatron.cpu import adapted
from rmrl.backends.megatron.mapping import EMBEDDING, Entry, entries, named
from rmrl.backends.megatron.model import MegatronModel
from rmrl.backends.megatron.optimizer import Optimizer
from rmrl.backends.megatron.ranks import experts_here
from rmrl.backends.megatron.shape import SHAPE
from rmrl.backends.storage import MODEL, Piece, boxes, read_pieces, whole, write_pieces

FORMAT = "megatron-dist-safetensors"
"""The name of this format in state.json."""
OPTIMIZER = "optimizer."
STEP = "optimizer.step"
AVERAGES = ("exp_avg", "exp_avg_sq")


def save_tensors(folder: Path, model: MegatronModel, optimizer: Optimizer | None) -> None:
    """Write what this process holds, parameters and optimizer state, into the empty `folder`. All
    processes call this together.

    Raises CheckpointError in every process when one fails, e.g. on a full disk.
    """
    parameters = _parameters(model)
    shape = json.dumps(dataclasses.asdict(model.shape)).encode()
    pieces = [whole(SHAPE, torch.frombuffer(bytearray(shape), dtype=torch.uint8))]
    owned = {key: parameter for key, parameter in parameters.items() if not parameter.copy}
    for parameter in owned.values():
        if optimizer is None or parameter.tensor.dtype == torch.float32:
            pieces += parameter.pieces(MODEL, parameter.tensor)
    if optimizer is not None:
        pieces += _state_pieces(optimizer, owned)
        for part in optimizer.parts:
            if part.optimizer is None or not part.optimizer.state:
                continue
            # torch counts per parameter, fused optimizers per group
            state = next(iter(part.optimizer.state.values()))
            if "step" not in state:
                state = part.optimizer.param_groups[0]
            pieces.append(whole(STEP, torch.tensor([int(state.get("step", 0))])))
            break
    write_pieces(folder, pieces)


def load_tensors(folder: Path, model: MegatronModel, optimizer: Optimizer | None) -> None:
    """Read what `save_tensors` wrote, with any parallel sizes, into the model and its optimizer.
    All processes call this together.

    Raises CheckpointError in every process, and leaves the model as it is, when the folder is torn
    or contains another model.
    """
    parameters = _parameters(model)
    step = torch.zeros(1, dtype=torch.int64)
    pieces: list[Piece] = []
    for parameter in parameters.values():
        pieces += parameter.pieces(MODEL, parameter.tensor)
    if optimizer is not None:
        pieces += [*_state_pieces(optimizer, parameters), whole(STEP, step)]
    read_pieces(folder, pieces)
    if optimizer is None:
        return
    count = int(step.item())
    for part in optimizer.parts:
        if part.optimizer is None:
            continue
        counters = [state for state in part.optimizer.state.values() if "step" in state]
        # A tensor each: the optimizer adds to every parameter's counter.
        for state in counters:
            state["step"] = torch.full_like(state["step"], count)
        if counters:
            continue
        for group in part.optimizer.param_groups:
            if isinstance(group.get("step"), Tensor):
                group["step"] = torch.full_like(group["step"], count)
            else:
                group["step"] = count


# --- parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameter:
    """A parameter that this process holds and its place in the whole one."""

    entry: Entry
    tensor: Tensor
    shards: tuple[Any, ...]
    """megatron-core's ShardedTensors over views of it, each a range of its elements: two for a gate
    and an up projection, else one."""

    @property
    def copy(self) -> bool:
        """True if another process, not a data-parallel one, represents the same numbers. (The
        storage chooses one data-parallel process.)

        Replicas are numbered along the pipeline (tied weights), the tensor-parallel and the
        data-parallel group.
        """
        return any(number > 0 for number in self.shards[0].replica_id[:-1])

    def pieces(self, prefix: str, values: Tensor, start: int = 0) -> Iterator[Piece]:
        """Yield the whole tensor's boxes for `values`, the elements from `start` on."""
        name = prefix + (EMBEDDING if self.entry.tied else self.entry.name)
        values = values.detach().view(-1)
        for shard in self.shards:
            # Experts are numbered by an axis of their own, which the names here do instead.
            size = list(shard.global_shape)[shard.prepend_axis_num :]
            offset = shard.global_offset[shard.prepend_axis_num :]
            rows = shard.local_shape[0]
            if self.entry.kind == "vocab":  # without padding
                size[0] = self.entry.shapes[0][0]
                rows = min(rows, max(0, size[0] - offset[0]))
            first = shard.data.storage_offset() - self.tensor.storage_offset()
            begin = max(start, first)
            end = min(start + len(values), first + rows * shard.data[0].numel())
            for element, (offsets, sizes) in boxes(shard.local_shape, begin - first, end - first):
                box = values[first + element - start :][: torch.Size(sizes).numel()].view(sizes)
                at = tuple(map(sum, zip(offset, offsets, strict=True)))
                yield Piece(name=name, size=tuple(size), offset=at, data=box)


def _parameters(model: MegatronModel) -> dict[int, _Parameter]:
    """Return id -> parameter for each parameter in this process."""
    table = {entry.name: entry for entry in entries(model.shape, model.role)}
    names: dict[int, str] = {
        id(tensor): name for name, tensor in named(model.chunks, experts_here(model.shape).start)
    }
    parameters: dict[int, _Parameter] = {}
    metadata = {
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
        "non_homogeneous_layers": True,  # a tensor per layer, not one of all layers
        "singleton_local_shards": False,
    }
    for chunk in model.chunks:
        with adapted():
            state: Any = chunk.sharded_state_dict(metadata=metadata)
        # ShardedTensors, and factories of them, over the parameters themselves.
        for sharded in state.values():
            key = id(sharded.data)
            if key not in names:
                continue  # a buffer
            shards = [sharded]
            if isinstance(sharded, dist_checkpointing.mapping.ShardedTensorFactory):
                shards = sharded.build()
            entry = table[names[key]]
            parameters[key] = _Parameter(entry=entry, tensor=sharded.data, shards=tuple(shards))
    missing = [name for key, name in names.items() if key not in parameters]
    assert not missing, f"megatron-core does not shard {missing}"
    return parameters


# --- optimizer


def _state_pieces(optimizer: Optimizer, parameters: dict[int, _Parameter]) -> Iterator[Piece]:
    """Yield master weights and averages; where the optimizer has not stepped yet they are allocated
    as zeros."""
    for part in optimizer.parts:
        if part.optimizer is None:  # no parameter of this process is in it
            continue
        with adapted():
            part.init_state_fn(part.optimizer, part.config)
        if isinstance(part.optimizer, (torch.optim.AdamW, torch.optim.Adam)):
            for state in part.optimizer.state.values():
                state.setdefault("step", torch.zeros(()))
        for tensor, start, master in _masters(part):
            parameter = parameters.get(id(tensor))
            if parameter is None:
                continue
            if tensor.dtype != torch.float32:  # else the optimizer steps the parameter itself
                yield from parameter.pieces(MODEL, master, start)
            state = part.optimizer.state[master]
            for name in AVERAGES:
                yield from parameter.pieces(f"{OPTIMIZER}{name}.", state[name], start)


def _masters(part: Any) -> Iterator[tuple[nn.Parameter, int, Tensor]]:
    """Yield (parameter, its first element that this process steps, the stepped tensor: those
    elements in float32)."""
    places = getattr(part, "model_param_group_index_map", None)
    if places is not None:  # the distributed optimizer: ranges
        for parameter, (group, number) in places.items():
            start = part._get_model_param_range_map(parameter)["param"].start
            yield parameter, start, part.optimizer.param_groups[group]["params"][number]
        return
    groups = part.optimizer.param_groups
    plain = [group["params"] for group in groups]
    if hasattr(part, "float16_groups"):
        plain = part.fp32_from_fp32_groups
        mixed = zip(part.float16_groups, part.fp32_from_float16_groups, strict=True)
        for parameters, masters in mixed:
            for parameter, master in zip(parameters, masters, strict=True):
                yield parameter, 0, master
    for parameters in plain:
        for parameter in parameters:
            yield parameter, 0, parameter

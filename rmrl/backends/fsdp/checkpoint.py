"""Sharded checkpoints: torch.distributed.checkpoint over safetensors files, so nothing is unpickled
when one is read.

Each process writes its parameter and optimizer shards. However many processes read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)

from rmrl.backends.fsdp import compat
from rmrl.backends.storage import cause, headers
from rmrl.errors import CheckpointError

FORMAT = "torch-dcp-safetensors"
"""The name of this format in state.json."""
OPTIMIZER = "optimizer."
"""Prefix of optimizer states' names; names of parameters have the prefix
rmrl.backends.storage.MODEL."""


def save_tensors(folder: Path, model: nn.Module, optimizer: torch.optim.AdamW | None) -> None:
    """Write this process's shards: parameters and optimizer state. All processes call this
    together.

    If a model trains in part (LoRA), only that part is written: the rest is in the model's own
    checkpoint.
    """
    write_tensors(folder, _tensors(model, optimizer))


def load_tensors(folder: Path, model: nn.Module, optimizer: torch.optim.AdamW | None) -> None:
    """Read what `save_tensors` wrote, with however many processes and either strategy, into the
    model and its optimizer.

    Raises CheckpointError when the folder lacks a tensor or has it in another shape.
    """
    tensors = _tensors(model, optimizer)
    read_tensors(folder, tensors)
    parameters: dict[str, Tensor] = {}
    state: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.startswith(OPTIMIZER):
            state[name.removeprefix(OPTIMIZER)] = tensor
        else:
            parameters[name] = tensor
    strategy = compat.strategy_of(model)
    strategy.set_shards(model, parameters)
    if optimizer is not None:
        strategy.set_optimizer_shards(model, optimizer, state)


def _tensors(model: nn.Module, optimizer: torch.optim.AdamW | None) -> dict[str, Tensor]:
    trained = compat.trained_names(model)
    tensors = {name: tensor for name, tensor in compat.shards(model).items() if name in trained}
    if optimizer is not None:
        state = compat.strategy_of(model).optimizer_shards(model, optimizer)
        tensors |= {OPTIMIZER + name: tensor for name, tensor in state.items()}
    return tensors


def write_tensors(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write this process's shards. All processes call this together. Raises CheckpointError when
    that fails, e.g. on a full disk."""
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        dcp.save(dict(tensors), storage_writer=writer)
    # CheckpointException is a BaseException: it would end the process instead of the call.
    except CheckpointException as error:
        raise CheckpointError(f"'{folder}' cannot be written: {cause(error)}") from error


def read_tensors(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill `tensors` in place from a checkpoint, however many processes saved it. All processes
    call this together.

    Raises CheckpointError when the folder lacks one of them or has it in another shape.
    """
    reader = HuggingFaceStorageReader(str(folder))
    stored = headers(reader).state_dict_metadata
    for name, tensor in tensors.items():
        if name not in stored:
            raise CheckpointError(
                f"'{folder}' holds no '{name}': it was written for another model; resume with the"
                " model it was saved from"
            )
        size = tuple(getattr(stored[name], "size", ()))
        if size != tuple(tensor.shape):
            raise CheckpointError(
                f"'{folder}' holds '{name}' with shape {size}, the model has {tuple(tensor.shape)}:"
                " it was written for another model; resume with the model it was saved from"
            )
    try:
        dcp.load(dict(tensors), storage_reader=reader)
    except CheckpointException as error:
        raise CheckpointError(f"'{folder}' cannot be read: {cause(error)}") from error

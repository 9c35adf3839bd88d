"""Sharded checkpoints: torch.distributed.checkpoint over safetensors files, so nothing is unpickled when one is read.

<folder>/tensors/*.safetensors     each process's shards of parameters and optimizer state; readable by any number of processes
<folder>/rng-<rank>.safetensors    random state of each process
<folder>/state.json                optimizer step, contents, number of processes; written last: a folder without it is torn
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter

from rmrl.errors import CheckpointError

ADAMW_STATE = ("exp_avg", "exp_avg_sq")


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters as they go to a checkpoint (shards of whole tensors), by name."""
    return {f"model.{name}": parameter.data for name, parameter in model.named_parameters()}


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, Tensor]:
    """AdamW's state by parameter name; zeros are put in place for an optimizer that has not stepped yet."""
    tensors = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=_step_device(parameter, optimizer))
            state.update({key: torch.zeros_like(parameter) for key in ADAMW_STATE})
        tensors.update({f"optimizer.{key}.{name}": state[key] for key in ("step", *ADAMW_STATE)})
    return tensors


def _step_device(parameter: nn.Parameter, optimizer: torch.optim.AdamW) -> torch.device:
    """Fused kernels want the step counter beside the parameter, the others on CPU."""
    return parameter.device if optimizer.defaults["fused"] else torch.device("cpu")


def write_tensors(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write this process's shards; all processes call this together."""
    dcp.save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))


def read_tensors(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill `tensors` in place from a checkpoint of any number of processes; all processes call this together.

    Raises CheckpointError when the folder lacks one of them or holds it in another shape.
    """
    reader = HuggingFaceStorageReader(str(folder))
    _check_shapes(folder, tensors, reader)
    try:
        dcp.load(dict(tensors), storage_reader=reader)
    except CheckpointException as error:
        raise CheckpointError(f"'{folder}' cannot be read: {next(iter(error.failures.values()))[0]}") from error


def _check_shapes(folder: Path, tensors: Mapping[str, Tensor], reader: HuggingFaceStorageReader) -> None:
    held = reader.read_metadata().state_dict_metadata
    for name, tensor in tensors.items():
        if name not in held:
            raise CheckpointError(
                f"'{folder}' holds no '{name}': it was written for another model; resume with the model it was saved from"
            )
        size = tuple(getattr(held[name], "size", ()))
        if size != tuple(tensor.shape):
            raise CheckpointError(
                f"'{folder}' holds '{name}' with shape {size}, the model has {tuple(tensor.shape)}: "
                "it was written for another model; resume with the model it was saved from"
            )


def write_rng(folder: Path, rank: int) -> None:
    """Save torch's random state of this process."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    save_file(states, folder / f"rng-{rank}.safetensors")


def read_rng(folder: Path, rank: int) -> None:
    """Restore it; does nothing for a process that the checkpoint does not know (it was saved by fewer)."""
    file = folder / f"rng-{rank}.safetensors"
    if not file.is_file():
        return
    states = load_file(file)
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write state.json under a temporary name first."""
    building = folder / ".state.json"
    building.write_text(json.dumps(dict(state), indent=2) + "\n")
    building.rename(folder / "state.json")


def read_state(folder: Path) -> dict[str, Any]:
    """Read state.json. Raises CheckpointError when the folder is none of ours, or torn."""
    file = folder / "state.json"
    if not file.is_file():
        raise CheckpointError(
            f"'{folder}' is no complete checkpoint (it has no state.json): choose another with trainer.resume_from_path=<folder>, "
            "or start anew with trainer.resume_mode=disable"
        )
    return json.loads(file.read_text())

"""A training checkpoint's state.json, the same for every backend. It is written last, so a folder
without it is torn. It describes the model, so that any process can export it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.backends import backend_of
from rmrl.backends.base import TrainSettings
from rmrl.config.schema import ModelConfig
from rmrl.errors import CheckpointError

STATE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """Describes a checkpoint's model, beside the tensors."""

    format: str
    """Format of the stored tensors. A name of rmrl.backends.export.READERS."""
    role: str
    model: ModelConfig
    dtype: str
    """Dtype of the stored parameters, and of the frozen weights, which are not stored."""


def describe(settings: TrainSettings, *, tensor_format: str) -> dict[str, Any]:
    """The entries in state.json that `saved_model` reads."""
    trained = settings.trained
    return {
        "format": tensor_format,
        "role": settings.role,
        "model": dataclasses.asdict(settings.model),
        "dtype": backend_of(trained.strategy).saved_dtype(trained),
    }


def saved_model(folder: Path) -> SavedModel:
    """Return the description that the checkpoint in `folder` has. Raises CheckpointError when it is
    torn or has no description."""
    state = read_state(folder)
    missing = [entry for entry in ("format", "role", "model", "dtype") if entry not in state]
    if missing:
        raise CheckpointError(
            f"'{folder / STATE}' has no entry for {', '.join(missing)}: an earlier version wrote"
            " it; resume the run once, so that its next checkpoint can be exported"
        )
    fields = {field.name for field in dataclasses.fields(ModelConfig)}
    entries = {name: value for name, value in state["model"].items() if name in fields}
    return SavedModel(
        format=state["format"],
        role=state["role"],
        model=ModelConfig(**entries),
        dtype=state["dtype"],
    )


def require_format(folder: Path, state: Mapping[str, Any], needed: str) -> None:
    """Raise CheckpointError when another backend, whose tensors are stored differently, wrote the
    checkpoint."""
    stored = state.get("format", needed)  # earlier versions had one format and no such entry
    if stored != needed:
        raise CheckpointError(
            f"'{folder}' holds tensors as {stored} and the strategy of this run reads {needed}:"
            " resume with the strategy that wrote it, or turn it into a model to start from with"
            " rmrl export checkpoint=<folder> out=<folder>"
        )


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write state.json, under a temporary name first."""
    building = folder / f".{STATE}"
    building.write_text(json.dumps(dict(state), indent=2) + "\n")
    building.rename(folder / STATE)


def read_state(folder: Path) -> dict[str, Any]:
    """Read state.json. Raises CheckpointError for a folder without one, or a torn file."""
    file = folder / STATE
    if not file.is_file():
        raise CheckpointError(
            f"'{folder}' is no complete checkpoint (it has no {STATE}): choose another with"
            " trainer.resume_from_path=<folder>, or start anew with trainer.resume_mode=disable"
        )
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise CheckpointError(
            f"'{file}' is not JSON ({error}): the checkpoint is torn; choose another"
        ) from error

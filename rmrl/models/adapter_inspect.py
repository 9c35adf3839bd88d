"""Reading of a LoRA adapter's folder: adapter_config.json and the headers of its tensors, as peft
writes them. Nothing is loaded, and nothing is ever unpickled."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmrl.errors import ConfigError, first_line
from rmrl.models.checkpoint_inspect import (
    TensorHeader,
    file_headers,
    read_config,
    stored_bytes,
    tensor_headers,
)

CONFIG_FILE = "adapter_config.json"
WEIGHT_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."
"""Part of peft's names of tensors that the base model does not have."""
_KEEPS_BASE = ("gaussian", "eva", "orthogonal")
"""Ways to draw an adapter's first weights that leave the base as it is, when it is loaded again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One adapter."""

    folder: Path
    rank: int
    """The largest rank of its layers."""
    base: str
    """The base model it names, a hub id or a folder; "" where it names none."""
    full_modules: tuple[str, ...] = ()
    """Modules that it replaces as a whole (`modules_to_save`), such as a scalar head."""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tensors: tuple[TensorHeader, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of its tensors as they are stored."""
        return stored_bytes(self.tensors)


def local_adapter(path: str | Path) -> Path:
    """The folder of an adapter; a hub id is looked up in (and, online, fetched to) the local hub
    cache. Raises ConfigError where there is none, and for tensors in a format other than
    safetensors."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        parts = str(path).split("/")
        if folder.exists() or len(parts) != 2 or not all(parts) or parts[0].startswith((".", "~")):
            raise ConfigError(
                f"adapter '{path}' is not a folder; give the folder of a LoRA that peft has saved,"
                " or a hub id such as org/name"
            )
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(str(path), allow_patterns=[CONFIG_FILE, WEIGHT_FILE]))
        except (OSError, ValueError) as error:  # the hub's own errors derive from these two
            raise ConfigError(
                f"adapter '{path}' is no folder here and could not be fetched from the hub"
                f" ({first_line(error)}); give a folder"
            ) from error
    if not (folder / CONFIG_FILE).is_file():
        raise ConfigError(
            f"'{folder}' holds no {CONFIG_FILE}; an adapter is the folder that peft's"
            " save_pretrained writes"
        )
    if not (folder / WEIGHT_FILE).is_file():
        raise ConfigError(
            f"'{folder}' holds no {WEIGHT_FILE}; other formats (*.bin) can run code while they are"
            " read and are refused: save the adapter with peft's save_pretrained, which writes"
            " safetensors"
        )
    return folder


def read_adapter(path: str | Path) -> Adapter:
    """Read an adapter. Raises ConfigError as `local_adapter` does, for a torn file, for anything
    but a LoRA, and for one that changes its base when it is loaded."""
    folder = local_adapter(path)
    file = folder / CONFIG_FILE
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError(f"it holds {type(config).__name__}")
        if str(config.get("peft_type")) != "LORA":
            raise ConfigError(
                f"'{folder}' is an adapter of peft_type={config.get('peft_type')}, and only LORA"
                " runs beside others on one engine; merge it into its base and give that as path"
            )
        initial = config.get("init_lora_weights")
        changes = isinstance(initial, str) and initial.lower() not in _KEEPS_BASE
        if changes or config.get("layer_replication"):
            entry = f"init_lora_weights={initial}" if changes else "layer_replication"
            raise ConfigError(
                f"'{folder}' changes the base model itself ({entry}), which other rewards share;"
                " convert it to a plain LoRA with peft, or merge it and give that as path"
            )
        ranks = [int(config["r"]), *map(int, (config.get("rank_pattern") or {}).values())]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"'{file}' is no adapter configuration ({type(error).__name__}: {error}); copy the"
            " adapter again"
        ) from error
    return Adapter(
        folder=folder,
        rank=max(ranks),
        base=str(config.get("base_model_name_or_path") or ""),
        full_modules=tuple(map(str, config.get("modules_to_save") or ())),
        config=config,
        tensors=file_headers(folder / WEIGHT_FILE),
    )


def check_fits(adapter: Adapter, base: str, *, named: str, where: str) -> None:
    """Raise ConfigError where the adapter was made for another model than the checkpoint `base`:
    its tensors do not fit the layers of that name, or it names another hub id than the user.

    `named`: the base as the user wrote it. A name that merely differs in spelling or place is a
    warning.
    """
    weights: dict[str, TensorHeader] = {}
    for header in tensor_headers(base):
        weights[_layer_of(header.name)] = header
    found = 0
    for header in adapter.tensors:
        name, _, part = header.name.partition(".lora_")
        if not part or len(header.shape) != 2 or part[0] not in "AB" or part[1:] != ".weight":
            continue
        layer = weights.get(_layer_of(f"{name}.weight"))
        if layer is None:
            continue
        found += 1
        width = header.shape[1] if part[0] == "A" else header.shape[0]
        if width not in layer.shape:
            raise ConfigError(
                f"{where}={adapter.folder}: it was made for {adapter.base or 'another model'}:"
                f" {header.name} has the shape {list(header.shape)}, and this layer of '{named}' is"
                f" {list(layer.shape)}; give the base that it was trained on as path"
            )
    if not found:
        first = adapter.tensors[0].name if adapter.tensors else "no tensor"
        raise ConfigError(
            f"{where}={adapter.folder}: '{named}' has none of the layers that it changes (the first"
            f" is {first}); give the base that it was trained on as path"
        )
    base_id = _hub_id(named) or _hub_id(base)
    adapter_id = _hub_id(adapter.base)
    if _plain(adapter.base) in ("", _plain(named), _plain(base), _plain(base_id)):
        return
    if base_id and adapter_id:
        raise ConfigError(
            f"{where}={adapter.folder}: it was trained on {adapter_id}, and path is {base_id}; give"
            " the model that it was trained on as path, or correct base_model_name_or_path in its"
            f" {CONFIG_FILE} where that is wrong"
        )
    _log.warning(
        f"{where}={adapter.folder}: it names its base {adapter.base}, and path is {named}; its"
        " tensors fit. Make sure that both are the same model"
    )


def slot_bytes(base: str, *, rank: int, element_bytes: int) -> int:
    """Bytes of the tensors that an engine reserves for one adapter of up to `rank`: A and B beside
    every matrix of the base, the input and the output embedding both."""
    total = 0
    tied = bool(read_config(base).get("tie_word_embeddings"))
    for header in tensor_headers(base):
        if len(header.shape) == 2:
            copies = 2 if tied and "embed" in header.name else 1
            total += copies * rank * sum(header.shape) * element_bytes
    return total


def _layer_of(name: str) -> str:
    """A tensor's name from its numbered layer on, which is what models of different classes agree
    on: base_model.model.model.layers.0.mlp.up_proj.weight -> layers.0.mlp.up_proj.weight."""
    parts = name.removeprefix(_PREFIX).split(".")
    for i, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[max(0, i - 1) :])
    return ".".join(parts)


def _hub_id(path: str) -> str:
    """The hub id (org/name) that a path stands for: itself, or that of a snapshot in the hub cache;
    "" for any other folder."""
    folder = Path(path).expanduser()
    if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
        return folder.parent.parent.name.removeprefix("models--").replace("--", "/", 1)
    parts = path.split("/")
    if len(parts) == 2 and all(parts) and not folder.exists() and parts[0][0] not in ".~":
        return path
    return ""


def _plain(name: str) -> str:
    """The last part of a name, without what people write in more than one way."""
    last = name.rstrip("/").rpartition("/")[2]
    return "".join(filter(str.isalnum, last)).lower()

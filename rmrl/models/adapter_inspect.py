"""Read a LoRA adapter's folder: adapter_config.json and its tensors' headers, as peft writes them.
Nothing is loaded, and nothing is ever unpickled."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmrl.errors import ConfigError, first_line
from rmrl.models.checkpoint_inspect import (
    WRITES_TEXT,
    TensorHeader,
    architecture,
    file_headers,
    read_config,
    stored_bytes,
    tensor_headers,
)

CONFIG_FILE = "adapter_config.json"
WEIGHT_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."
"""Part of peft's tensor names that the base model does not have."""
_KEEPS_BASE = ("gaussian", "eva", "orthogonal")
"""Ways to draw an adapter's first weights that leave the base as it is, when it is loaded again."""
_HEAD_TASKS = ("SEQ_CLS", "TOKEN_CLS")
_TASKS = {
    "generate": ("CAUSAL_LM",),
    "pooling": _HEAD_TASKS,
    "token_pooling": (*_HEAD_TASKS, "FEATURE_EXTRACTION"),
}
"""Values of peft's `task_type` that fit each runner; process reward models with code of their own
are plain models to peft."""
_OF_ADAPTER = re.compile(
    r"\.(?:lora_|token_adapter\b|trainable_tokens_|modules_to_save\b|base_layer\b)"
)
"""Where a tensor's name goes on with what peft has put beside the module before it."""

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
        """Its tensors' bytes as they are stored."""
        return stored_bytes(self.tensors)


def local_adapter(path: str | Path) -> Path:
    """An adapter's folder. A hub id is looked up in (and, online, fetched to) the local hub
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
        if str(config.get("bias") or "none") != "none":
            raise ConfigError(
                f"'{folder}' has bias={config['bias']}: loading it overwrites biases of the base"
                " model itself, which other rewards share; merge it into its base and give that as"
                " path, or train it with bias=none"
            )
        ranks = [int(config["r"]), *map(int, (config.get("rank_pattern") or {}).values())]
    except ConfigError:  # a ValueError itself
        raise
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


def check_task(adapter: Adapter, base: str, *, runner: str, where: str) -> None:
    """Raise ConfigError where the adapter was trained for another use than a `runner` model's (see
    `EngineSpec.runner`): engines would drop its head, or read one that it never saw."""
    task = str(adapter.config.get("task_type") or "")
    name = architecture(base)
    if task in _HEAD_TASKS and name.endswith(WRITES_TEXT):
        auto = "SequenceClassification" if task == "SEQ_CLS" else "TokenClassification"
        raise ConfigError(
            f"{where}={adapter.folder}: it was trained with a head (task_type={task}), and '{base}'"
            f" is a {name}, which has no place for one; merge the two,"
            f" AutoModelFor{auto}.from_pretrained(<base>, num_labels=1), then"
            " PeftModel.from_pretrained(<model>, <adapter>).merge_and_unload().save_pretrained("
            "<folder>), and give that folder, with the tokenizer beside it, as path"
        )
    fitting = _TASKS.get(runner, ())
    if task and fitting and task not in fitting:
        use = "has its model write" if runner == "generate" else "reads a head of its model"
        raise ConfigError(
            f"{where}={adapter.folder}: it was trained with task_type={task}, and this reward"
            f" {use}, which takes {' or '.join(fitting)}; give an adapter that was trained for"
            f" that, or correct task_type in its {CONFIG_FILE} where that is wrong"
        )


def check_fits(adapter: Adapter, base: str, *, named: str, where: str) -> None:
    """Raise ConfigError where the adapter was made for another model than the checkpoint `base`:
    its tensors have no layer there or do not fit it, or it names another hub id than the user.

    `named`: the base as the user wrote it. A name that merely differs in spelling or place is a
    warning. Shapes are not compared with a quantised base's, which are packed.
    """
    config = read_config(base)
    weights: dict[str, TensorHeader] = {
        _layer_of(header.name): header for header in tensor_headers(base)
    }
    modules = _Modules(weights, tied=bool(config.get("tie_word_embeddings", True)))
    missing = [header.name for header in adapter.tensors if header.name not in modules]
    if missing or not adapter.tensors:
        first = missing[0] if missing else "no tensor"
        raise ConfigError(
            f"{where}={adapter.folder}: it was made for {adapter.base or 'another model'}:"
            f" {len(missing)} of its {len(adapter.tensors)} tensors have no layer in '{named}' (the"
            f" first is {first}); give the base that it was trained on as path"
        )
    for header in adapter.tensors:
        name, _, part = header.name.partition(".lora_")
        if part not in ("A.weight", "B.weight") or len(header.shape) != 2:
            continue
        layer = weights.get(_layer_of(f"{name}.weight"))
        if layer is None or config.get("quantization_config"):
            continue
        width = header.shape[1] if part[0] == "A" else header.shape[0]
        if width not in layer.shape:
            raise ConfigError(
                f"{where}={adapter.folder}: it was made for {adapter.base or 'another model'}:"
                f" {header.name} has the shape {list(header.shape)}, and this layer of '{named}' is"
                f" {list(layer.shape)}; give the base that it was trained on as path"
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


class _Modules:
    """A checkpoint's modules, by its tensors' names. `in` asks whether an adapter's tensor belongs
    to one."""

    def __init__(self, tensors: Iterable[str], *, tied: bool) -> None:
        """`tensors`: names as `_layer_of` returns them; `tied`: the output embedding may be the
        input's, and not stored."""
        self._paths: set[str] = set()
        self._last = {"lm_head"} if tied else set[str]()
        for name in tensors:
            parts = name.split(".")
            if not any(map(str.isdigit, parts)):
                self._last.update(parts[-2:-1])  # before them, classes differ: model.norm, norm
            for end in range(1, len(parts) + 1):
                self._paths.add(".".join(parts[:end]))

    def __contains__(self, tensor: str) -> bool:
        module = _OF_ADAPTER.split(tensor)[0]
        if module == tensor:
            module = tensor.rpartition(".")[0]
        path = _layer_of(module)
        parts = path.split(".")
        if not any(map(str.isdigit, parts)):
            return parts[-1] in self._last
        # transformers renames and joins the experts of a layer while it loads them.
        return path in self._paths or ("experts" in parts and ".".join(parts[:2]) in self._paths)


def slot_bytes(base: str, *, rank: int, element_bytes: int) -> int:
    """How many bytes an engine reserves for one adapter with up to `rank`: A and B beside every
    matrix in the base, the input and the output embedding both.

    bitsandbytes packs a 4-bit matrix of n numbers into a column of n / 2 bytes. Its sides are
    counted as 3 sqrt(n) together, which is enough where neither is seven times the other.
    """
    total = 0
    config = read_config(base)
    tied = bool(config.get("tie_word_embeddings"))
    for header in tensor_headers(base):
        if len(header.shape) == 2:
            copies = 2 if tied and "embed" in header.name else 1
            sides = sum(header.shape)
            if config.get("quantization_config") and header.shape[1] == 1:
                sides = 3 * math.isqrt(2 * header.shape[0])
            total += copies * rank * sides * element_bytes
    return total


def _layer_of(name: str) -> str:
    """A tensor's name from its numbered layer on, on which models in different classes agree:
    base_model.model.model.layers.0.mlp.up_proj.weight -> layers.0.mlp.up_proj.weight."""
    parts = name.removeprefix(_PREFIX).split(".")
    for i, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[max(0, i - 1) :])
    return ".".join(parts)


def _hub_id(path: str) -> str:
    """The hub id (org/name) that a path stands for: itself, or a snapshot's in the hub cache; ""
    for any other folder."""
    folder = Path(path).expanduser()
    if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
        return folder.parent.parent.name.removeprefix("models--").replace("--", "/", 1)
    parts = path.split("/")
    if len(parts) == 2 and all(parts) and not folder.exists() and parts[0][0] not in ".~":
        return path
    return ""


def _plain(name: str) -> str:
    """A name's last part, without what people write in more than one way."""
    last = name.rstrip("/").rpartition("/")[2]
    return "".join(filter(str.isalnum, last)).lower()

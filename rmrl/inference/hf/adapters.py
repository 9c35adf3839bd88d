"""LoRA adapters in a transformers model, through peft: one is active, or none."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from rmrl.models.adapter_inspect import Adapter, read_adapter

_HEADS = ("score", "classifier")
"""Heads that peft stores for a scalar model, whether or not `modules_to_save` names them."""


def adapter_problem(adapter: Adapter, runner: str) -> str:
    """Why the adapter cannot run here on such a model. "": it can."""
    if runner == "embed":
        return "this engine makes no embeddings"
    if importlib.util.find_spec("peft") is None:
        return f"{adapter.folder.name} needs peft, which is not installed: pip install peft"
    return ""


def stored_modules(adapter: Adapter) -> list[str]:
    """Return the modules in the adapter's file that it replaces as a whole."""
    stored: list[str] = []
    for module in dict.fromkeys((*adapter.full_modules, *_HEADS)):
        for tensor in adapter.tensors:
            if f".{module}." in tensor.name and ".lora_" not in tensor.name:
                stored.append(module)
                break
    return stored


class Adapters:
    """One model's adapters, injected into it in place. Layers without one, and all while none is
    active, compute as before."""

    def __init__(self, model: Any, folders: Sequence[str]) -> None:
        """Raises what peft raises for a folder that does not fit the model, ValueError for one of
        which a part has no place in it or is not there."""
        self._names = {folder: f"adapter{i}" for i, folder in enumerate(folders)}
        self._active: str | None = None
        self._peft: Any = None
        read = {folder: read_adapter(folder) for folder in folders}
        # peft wants new embeddings of every adapter that comes after one with some.
        order = sorted(folders, key=lambda f: bool(read[f].config.get("trainable_token_indices")))
        for folder in order:
            from peft import PeftConfig, PeftModel

            config: Any = PeftConfig.from_pretrained(folder)
            # peft's class for a task gives every further adapter the head of the first; without a
            # task each brings what it has stored, whatever the order.
            config.task_type = None
            config.inference_mode = True
            config.modules_to_save = stored_modules(read[folder]) or None
            name = self._names[folder]
            if self._peft is None:
                self._peft = PeftModel(model, config, adapter_name=name)
            else:
                self._peft.add_adapter(name, config)
            loaded = self._peft.load_adapter(folder, adapter_name=name)
            lost = [*loaded.unexpected_keys, *loaded.missing_keys]
            if lost:
                raise ValueError(
                    f"the adapter '{folder}' was made for another class of model: {len(lost)}"
                    f" tensors have no counterpart, such as {lost[0]}; merge it into its base and"
                    " give that as path"
                )

    def activate(self, folder: str) -> None:
        """Let the model compute with this adapter from now on. "": with none."""
        if self._peft is None or folder == self._active:
            return
        if folder:
            self._peft.base_model.enable_adapter_layers()
            self._peft.set_adapter(self._names[folder])
        else:
            self._peft.base_model.disable_adapter_layers()
        self._active = folder

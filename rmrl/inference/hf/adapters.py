"""LoRA adapters in a transformers model, through peft: one of them is active, or none."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from rmrl.models.adapter_inspect import Adapter


def adapter_problem(adapter: Adapter, runner: str) -> str:
    """Why the adapter cannot run here on a model of that kind; "": it can."""
    if runner == "embed":
        return "this engine makes no embeddings"
    if importlib.util.find_spec("peft") is None:
        return f"{adapter.folder.name} needs peft, which is not installed: pip install peft"
    return ""


class Adapters:
    """The adapters of one model, injected into it in place. Layers without one, and all of them
    while none is active, compute as before."""

    def __init__(self, model: Any, folders: Sequence[str]) -> None:
        """Raises what peft raises for a folder that does not fit the model."""
        self._names = {folder: f"adapter{i}" for i, folder in enumerate(folders)}
        self._active: str | None = None
        self._peft: Any = None
        for folder, name in self._names.items():
            if self._peft is None:
                from peft import PeftModel

                self._peft = PeftModel.from_pretrained(model, folder, adapter_name=name)
            else:
                self._peft.load_adapter(folder, adapter_name=name)

    def activate(self, folder: str) -> None:
        """Let the model compute with this adapter from now on; "": with none."""
        if self._peft is None or folder == self._active:
            return
        if folder:
            self._peft.base_model.enable_adapter_layers()
            self._peft.set_adapter(self._names[folder])
        else:
            self._peft.base_model.disable_adapter_layers()
        self._active = folder

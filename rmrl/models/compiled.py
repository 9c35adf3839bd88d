"""torch.compile for a model's decoder layers."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterable

from torch import nn

COMPILERS = ("g++", "clang++")


def compiler_problem(device: str) -> str:
    """Reason why torch cannot compile for `device` here, with a remedy; "" if it can."""
    if device == "cuda" and importlib.util.find_spec("triton") is None:
        return "needs triton, which is not installed: pip install triton"
    if device == "cpu" and not any(shutil.which(name) for name in COMPILERS):
        return "needs a C++ compiler, and there is none: apt-get install g++"
    return ""


def compile_layers(layers: Iterable[nn.Module], *, backend: str = "inductor") -> None:
    """Compile each layer in place, at its first call and once for rows with any length; parameter
    names stay. Call it before the layers are sharded."""
    for layer in layers:
        layer.compile(dynamic=True, backend=backend)

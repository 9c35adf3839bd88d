"""Check that this process's GPU has vLLM's batch-invariant kernels, before vLLM is imported."""

from __future__ import annotations

import os

from rmrl.errors import EngineLoadError
from rmrl.inference.environment import BATCH_INVARIANT

LEAST_CAPABILITY = (8, 0)
"""Requirement of vLLM 0.32 on NVIDIA GPUs (vLLM's documentation, Batch Invariance)."""


def check_device() -> None:
    """Raise EngineLoadError where the environment switches the kernels on and the device cannot run
    them."""
    if os.environ.get(BATCH_INVARIANT, "0") != "1":
        return
    import torch

    if not torch.cuda.is_available():
        raise EngineLoadError(
            "batch_invariant=True needs a CUDA device, and this process has none; leave it out, or"
            " use dtype=float32"
        )
    if torch.version.hip is None:
        refuse_capability(torch.cuda.get_device_capability(), torch.cuda.get_device_name())


def refuse_capability(capability: tuple[int, int], name: str) -> None:
    """Raise EngineLoadError for an NVIDIA GPU that is too old."""
    if capability < LEAST_CAPABILITY:
        minimum = ".".join(map(str, LEAST_CAPABILITY))
        present = ".".join(map(str, capability))
        raise EngineLoadError(
            f"batch_invariant=True needs a GPU of compute capability {minimum} or higher, and"
            f" {name} has {present}; leave it out, or use dtype=float32, in which scores move far"
            " less"
        )

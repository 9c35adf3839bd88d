"""Whether this process's GPU has vLLM's batch-invariant kernels, checked before vLLM is
imported."""

from __future__ import annotations

import os

from rmrl.errors import EngineLoadError
from rmrl.inference.environment import BATCH_INVARIANT

LEAST_CAPABILITY = (8, 0)
"""Of vLLM 0.32 on NVIDIA GPUs (vLLM's documentation, Batch Invariance)."""


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
        seen, least = (".".join(map(str, each)) for each in (capability, LEAST_CAPABILITY))
        raise EngineLoadError(
            f"batch_invariant=True needs a GPU of compute capability {least} or higher, and {name}"
            f" has {seen}; leave it out, or use dtype=float32, in which scores move far less"
        )

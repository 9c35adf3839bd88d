"""New weights travel from the training processes to the rollout engines through one file in shared memory, versioned by step."""

from __future__ import annotations

import os
from pathlib import Path

from rmrl.serving.weight_file import weight_folder
from rmrl.trainer.policy import Policy
from rmrl.trainer.rollouts import RolloutPool


async def publish_weights(policy: Policy, rollouts: RolloutPool, *, version: int, dtype: str, size_hint_bytes: int) -> int:
    """Export, load into the engines (which wakes their weights), wake the rest, remove the file; returns the bytes that travelled."""
    folder = weight_folder(size_hint_bytes)
    path = folder / f"rmrl-weights-{os.getpid()}-{version}.safetensors"
    try:
        async with policy.on_device():
            sent = await policy.export_weights(str(path), dtype=dtype)
        await rollouts.load_weights(str(path), version=version)
        await rollouts.wake()
    finally:
        Path(path).unlink(missing_ok=True)
    return sent

"""A whole checkpoint, written and sealed at once."""

from __future__ import annotations

from pathlib import Path

from rmrl.trainer.checkpoint import Checkpoint, Write, seal, write_files


async def save(root: Path, step: int, write: Write, *, config_fingerprint: str = "") -> Checkpoint:
    """Write a checkpoint and seal it; errors as in `write_files`."""
    return await seal(await write_files(root, step, write, config_fingerprint=config_fingerprint))

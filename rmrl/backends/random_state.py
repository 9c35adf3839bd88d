"""Each process's random state, beside a checkpoint's tensors: <folder>/rng-<rank>.safetensors."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def write_rng(folder: Path, rank: int) -> None:
    """Save this process's torch random state."""
    states = {"cpu": torch.get_rng_state()}
    # A process that trains on the CPU of a machine with GPUs must not touch them.
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    save_file(states, folder / f"rng-{rank}.safetensors")


def read_rng(folder: Path, rank: int) -> None:
    """Restore torch's random state; does nothing for a process without a file (the checkpoint was
    saved by fewer)."""
    file = folder / f"rng-{rank}.safetensors"
    if not file.is_file():
        return
    states = load_file(file)
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(states["cuda"])

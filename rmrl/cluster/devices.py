"""What the machine offers: device kind, free memory, cores."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from rmrl.errors import ConfigError

_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
"""Limit and use of a container's memory, versions 2 and 1."""


def resolve_device(asked: str) -> str:
    """auto: cuda where torch sees a device, else cpu. Raises ConfigError for a cuda that torch does
    not see."""
    if asked not in ("auto", "cuda"):
        return asked
    import torch

    there = torch.cuda.is_available()
    if asked == "cuda" and not there:
        raise ConfigError(
            f"trainer.device=cuda, and torch {torch.__version__} sees no CUDA device: use"
            " trainer.device=auto or cpu, or install a build of torch and a driver that the GPU"
            " needs"
        )
    return "cuda" if there else "cpu"


def device_count(device: str) -> int:
    """GPUs of this machine that torch sees; 0 for a device other than cuda."""
    if device != "cuda":
        return 0
    import torch

    return torch.cuda.device_count()


def free_bytes(device: str) -> int:
    """Memory that can be had now: of GPU 0, or of the machine and the container around us."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(0)[0])
    available = int(psutil.virtual_memory().available)
    return min(available, container_free_bytes(_CGROUP, default=available))


def total_bytes(device: str) -> int:
    """Memory there is: of GPU 0, or of the machine."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(0)[1])
    return int(psutil.virtual_memory().total)


def container_free_bytes(root: Path, *, default: int) -> int:
    """What a container's limit leaves, pages of files counted as free; `default` where there is no
    limit."""
    for limit_file, used_file in _CGROUP_FILES:
        try:
            limit = (root / limit_file).read_text(encoding="ascii").strip()
            used = int((root / used_file).read_text(encoding="ascii"))
            stat = (root / limit_file).with_name("memory.stat").read_text(encoding="ascii")
        except (OSError, ValueError):
            continue
        if limit == "max":
            return default
        fields = dict(line.split() for line in stat.splitlines())
        reclaimable = int(fields.get("total_inactive_file", fields.get("inactive_file", 0)))
        return max(0, int(limit) - used + reclaimable)
    return default


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

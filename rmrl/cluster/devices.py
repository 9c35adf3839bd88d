"""Resources of the machine: device kind, free memory, cores."""

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


def resolve_device(device: str) -> str:
    """The device kind to use; auto: cuda where torch sees a device, else cpu.

    Raises ConfigError for cuda where torch sees no device.
    """
    if device not in ("auto", "cuda"):
        return device
    import torch

    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise ConfigError(
            f"trainer.device=cuda, and torch {torch.__version__} sees no CUDA device: use"
            " trainer.device=auto or cpu, or install a build of torch and a driver that the GPU"
            " needs"
        )
    return "cuda" if has_cuda else "cpu"


def device_count(device: str) -> int:
    """GPUs of this machine that torch sees; 0 for a device other than cuda."""
    if device != "cuda":
        return 0
    import torch

    return torch.cuda.device_count()


def free_bytes(device: str) -> int:
    """Free memory in bytes: of GPU 0, or of the machine within its container's limit."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(0)[0])
    available = int(psutil.virtual_memory().available)
    return min(available, container_free_bytes(_CGROUP, default=available))


def total_bytes(device: str) -> int:
    """Total memory in bytes: of GPU 0, or of the machine."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(0)[1])
    return int(psutil.virtual_memory().total)


def container_free_bytes(root: Path, *, default: int) -> int:
    """Memory left within a container's limit, cached file pages counted as free; `default` where
    there is no limit."""
    for limit_file, used_file in _CGROUP_FILES:
        try:
            limit = (root / limit_file).read_text(encoding="ascii").strip()
            used = int((root / used_file).read_text(encoding="ascii"))
            stat = (root / limit_file).with_name("memory.stat").read_text(encoding="ascii")
        except (OSError, ValueError):
            continue
        if limit == "max":
            return default
        fields = dict(map(str.split, stat.splitlines()))
        reclaimable = int(fields.get("total_inactive_file", fields.get("inactive_file", 0)))
        return max(0, int(limit) - used + reclaimable)
    return default


def cores() -> int:
    """CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

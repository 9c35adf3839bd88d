"""Devices that a job can have, free memory and cores. No CUDA context is created to find them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import psutil

from rmrl.cluster.gpu import Gpu
from rmrl.errors import ConfigError
from rmrl.inference.weights.shared_memory import free_scratch_bytes

_log = logging.getLogger(__name__)

_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
"""Limit and use of a container's memory, versions 2 and 1."""
_DEV = Path("/dev")
_GPU_NODES = ("nvidiactl", "nvhost-gpu", "nvgpu", "nvmap", "kfd", "dxg")
"""Files that drivers make: NVIDIA's, those for its boards, AMD's, and WSL's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """GPUs that models can use on one machine, and its own memory."""

    gpus: tuple[Gpu, ...] = ()
    host_free_bytes: int = 0
    shared_memory_bytes: int | None = None
    """Free bytes of /dev/shm. None: unknown, or there is none."""
    temporary_bytes: int | None = None
    """Free bytes of the temporary folder."""
    without: str = ""
    """Cause of `gpus` being empty, as a clause."""
    unusable_gpus: bool = False
    """There are GPUs, and torch cannot use them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Devices that a job can have, as known before it starts a process."""

    kind: str
    """cuda or cpu."""
    machines: tuple[Machine, ...]
    """CUDA: the machines that have GPUs, those with most first. CPU: this machine."""

    def gpus_per_node(self, nnodes: int) -> int:
        """Return the GPUs that each of `nnodes` machines has; 0 with fewer machines and on CPU."""
        if self.kind != "cuda" or nnodes > len(self.machines):
            return 0
        return len(self.machines[nnodes - 1].gpus)

    def total_bytes(self) -> int:
        """Return the smallest GPU's memory, 0 on CPU."""
        gpus = chain.from_iterable(machine.gpus for machine in self.machines)
        return min((gpu.total_bytes for gpu in gpus), default=0)

    def gpu_name(self) -> str:
        """Return the name that all GPUs have. "" on CPU and where they differ."""
        names = {gpu.name for machine in self.machines for gpu in machine.gpus}
        return names.pop() if len(names) == 1 else ""

    def free_bytes(self, count: int) -> int:
        """Return how much memory is free on the fullest among the first `count` GPUs of any
        machine; on CPU the machine's, within its container's limit."""
        if self.kind != "cuda":
            return self.host_free_bytes()
        gpus = chain.from_iterable(machine.gpus[:count] for machine in self.machines)
        return min(gpu.free_bytes for gpu in gpus)

    def host_free_bytes(self) -> int:
        """Return the machines' own free memory; the smallest one's."""
        return min(machine.host_free_bytes for machine in self.machines)


def this_machine() -> Machine:
    """Return this machine with its folders for short-lived files. See `_gpus_and_memory`."""
    shared, temporary = free_scratch_bytes()
    return replace(_gpus_and_memory(), shared_memory_bytes=shared, temporary_bytes=temporary)


def _gpus_and_memory() -> Machine:
    """Return this machine. GPUs are counted as far as CUDA_VISIBLE_DEVICES leaves them to this
    process and torch's build can use them. No CUDA context is created where NVML reports their
    memory.

    Raises InfrastructureError where NVIDIA's driver is present and gives no answer.
    """
    host_free = free_bytes()
    if not has_gpu_node():
        return Machine(host_free_bytes=host_free, without="it has no NVIDIA driver")
    try:
        import torch
    except ModuleNotFoundError:  # rules, servers and judgements from files need none
        return Machine(host_free_bytes=host_free, without="torch is not installed")
    from rmrl.cluster import nvml

    if torch.version.hip is not None or not nvml.driver_is_loaded():
        # Without NVML (AMD, some embedded boards) torch itself is the only source.
        seen_by_torch = tuple(_gpus_of_torch())
        without = "" if seen_by_torch else "no NVIDIA driver is loaded"
        return Machine(gpus=seen_by_torch, host_free_bytes=host_free, without=without)
    gpus = nvml.visible_gpus()
    if not gpus:
        without = "the driver lists no GPU"
        if "CUDA_VISIBLE_DEVICES" in os.environ:
            value = os.environ["CUDA_VISIBLE_DEVICES"]
            without = f"the driver lists no GPU of CUDA_VISIBLE_DEVICES='{value}'"
        return Machine(host_free_bytes=host_free, without=without)
    if torch.version.cuda is None:
        without = f"the driver lists {len(gpus)}, and torch {torch.__version__} is built for CPUs"
        return Machine(host_free_bytes=host_free, without=without, unusable_gpus=True)
    with_memory = tuple(gpu for gpu in gpus if gpu is not None)
    if len(with_memory) < len(gpus):
        # Unified memory: torch's numbers cost a CUDA context, and there are no others.
        with_memory = tuple(_gpus_of_torch())
    return Machine(gpus=with_memory, host_free_bytes=host_free)


def has_gpu_node() -> bool:
    """Return False on a Linux machine where no GPU has a driver. Looking costs nothing. Importing
    torch takes seconds, and jobs with rules alone need none."""
    return sys.platform != "linux" or any((_DEV / name).exists() for name in _GPU_NODES)


def _gpus_of_torch() -> Iterator[Gpu]:
    import torch

    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name = torch.cuda.get_device_name(index)
        yield Gpu(total_bytes=int(total), free_bytes=int(free), name=name)


def choose_devices(device: str, machines: Sequence[Machine], *, where: str) -> Devices:
    """Return the devices for `trainer.device`; auto: cuda where a machine has GPUs, else cpu, and
    the log has the reason.

    `machines`: all that can be used; `where`: what they are, as a sentence's subject. Raises
    ConfigError for cuda where no machine has a GPU.
    """
    with_gpus = [machine for machine in machines if machine.gpus]
    with_gpus.sort(key=lambda machine: -len(machine.gpus))
    if with_gpus:
        counts = ", ".join(str(len(machine.gpus)) for machine in with_gpus)
        if len(with_gpus) > 1:
            counts = f"machines with {counts}"
        if device == "auto":
            _log.info(f"trainer.device=auto: cuda, {where} has {counts} GPU(s)")
        return Devices(kind="cuda", machines=tuple(with_gpus))
    causes = "; ".join(dict.fromkeys(machine.without for machine in machines))
    if device == "cuda":
        raise ConfigError(
            f"trainer.device=cuda, and {where} has no GPU that can be used ({causes}): install"
            " NVIDIA's driver and a build of torch for CUDA (rmrl doctor finds what is missing),"
            " join a cluster with GPUs (ray_kwargs.ray_init.address=<head>:6379, each machine"
            " with ray start --address=<head>:6379 --num-gpus=<GPUs>), or use trainer.device=cpu"
        )
    level = logging.INFO
    if any(machine.unusable_gpus for machine in machines):
        level = logging.WARNING
    _log.log(level, f"trainer.device=auto: cpu, {where} has no GPU that can be used ({causes})")
    return cpu_devices()


def cpu_devices() -> Devices:
    """Return this machine without its GPUs."""
    shared, temporary = free_scratch_bytes()
    machine = Machine(
        host_free_bytes=free_bytes(), shared_memory_bytes=shared, temporary_bytes=temporary
    )
    return Devices(kind="cpu", machines=(machine,))


def local_devices(device: str) -> Devices:
    """Return the devices for `trainer.device` on this machine alone. See `choose_devices`."""
    if device == "cpu":
        return cpu_devices()
    return choose_devices(device, [this_machine()], where="this machine")


def free_bytes() -> int:
    """The machine's free memory in bytes, within its container's limit."""
    available = int(psutil.virtual_memory().available)
    return min(available, container_free_bytes(_CGROUP, default=available))


def total_bytes() -> int:
    """The machine's memory in bytes."""
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


def joined_address(ray_init: Mapping[str, Any]) -> str | None:
    """Return the Ray cluster address that a job joins, None where it starts Ray itself, or needs
    none."""
    address = ray_init.get("address") or os.environ.get("RAY_ADDRESS")
    if not address or ray_init.get("address") == "local":
        return None
    return str(address)

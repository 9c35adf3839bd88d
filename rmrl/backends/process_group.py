"""Training's process group: how a process joins and leaves it, and reductions over a few numbers.

CPU processes communicate through gloo, CUDA processes through NCCL (and gloo for host memory);
nothing above this file depends on which.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import timedelta
from functools import cache

import torch
import torch.distributed as dist

from rmrl.backends.base import ProcessSettings
from rmrl.errors import ConfigError

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


def join_group(process: ProcessSettings, device: str) -> torch.device:
    """Join the process group (once per process; a second engine shares it) and return this
    process's device."""
    if device == "cuda":
        if not torch.cuda.is_available():
            raise ConfigError(
                "trainer.device=cuda, but torch sees no CUDA device: set trainer.device=cpu, or"
                " install a CUDA build of torch"
            )
        count = torch.cuda.device_count()
        if process.local_rank >= count:
            raise ConfigError(
                f"training process {process.local_rank} of this machine has no GPU (torch sees"
                f" {count}): set trainer.n_gpus_per_node={count}"
            )
        torch.cuda.set_device(process.local_rank)
    if process.threads is not None:
        torch.set_num_threads(process.threads)
    if dist.is_initialized():
        assert dist.get_world_size() == process.world_size, (
            "the process group of this process has another size"
        )
    else:
        address = process.init_method
        if not address:
            if process.world_size > 1:
                raise ValueError(
                    f"a group of {process.world_size} processes needs ProcessSettings.init_method,"
                    " e.g. tcp://127.0.0.1:29500"
                )
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        dist.init_process_group(
            BACKENDS[device],
            init_method=address,
            rank=process.rank,
            world_size=process.world_size,
            timeout=timedelta(seconds=process.timeout_s),
        )
    if device == "cuda":
        return torch.device("cuda", process.local_rank)
    return torch.device("cpu")


def leave_group() -> None:
    """Leave the process group; does nothing outside one."""
    neighbours.cache_clear()
    if dist.is_initialized():
        dist.destroy_process_group()


@cache
def neighbours(size: int, timeout_s: float) -> dist.ProcessGroup:
    """This process's group among groups with `size` consecutive ranks, one for all models. Call it
    in every process."""
    group = dist.new_subgroups(size, timeout=timedelta(seconds=timeout_s))[0]
    assert isinstance(group, dist.ProcessGroup)
    return group


def all_sum(values: Sequence[float]) -> list[float]:
    """Sums over all processes, in float64. Over gloo on CUDA too, as in `all_max`: host numbers
    need no wait for the device's work."""
    total = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(total)
    return total.tolist()


def all_max(value: int) -> int:
    """The largest value in all processes."""
    largest = torch.tensor(value)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return int(largest.item())


def barrier() -> None:
    """Wait for all processes, at most the group's timeout."""
    all_max(0)

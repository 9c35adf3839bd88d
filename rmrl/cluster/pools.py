"""Resource pools: devices apart from the policy's, reserved for reward engines
(trainer.resource_pools).

Reading the configuration needs no Ray; reserving does.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmrl.config.schema import TrainerConfig
from rmrl.errors import ConfigError

if TYPE_CHECKING:
    from rmrl.cluster.processes import RayHost
    from rmrl.cluster.worker_group import Allocation

_KEYS = ("nnodes", "n_gpus_per_node")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """One pool's devices; on CPU its process slots."""

    nnodes: int = 1
    n_gpus_per_node: int = 1

    @property
    def devices(self) -> int:
        """How many devices in all."""
        return self.nnodes * self.n_gpus_per_node


def pool_sizes(resource_pools: Mapping[str, Any]) -> dict[str, PoolSize]:
    """Check and return trainer.resource_pools. Raises one ConfigError with every problem."""
    sizes: dict[str, PoolSize] = {}
    problems: list[str] = []
    for name, entries in resource_pools.items():
        pool_problems = _pool_problems(name, entries)
        if pool_problems:
            problems += pool_problems
        else:
            sizes[name] = PoolSize(**entries)
    if problems:
        raise ConfigError(problems)
    return sizes


def node_count(trainer: TrainerConfig, pool: str | None) -> int:
    """Return a pool's machines, or the policy's."""
    if pool is None:
        return trainer.nnodes
    return pool_sizes(trainer.resource_pools)[pool].nnodes


def device_count(trainer: TrainerConfig, pool: str | None) -> int:
    """Return how many devices `pool` has (None: the policy's own); on CPU, of processes.

    Raises ConfigError for malformed pools, KeyError for one that does not exist.
    """
    if pool is None:
        return trainer.world_size
    return pool_sizes(trainer.resource_pools)[pool].devices


def _pool_problems(name: Any, entries: Any) -> list[str]:
    where = f"trainer.resource_pools.{name}"
    if not isinstance(name, str) or not name.isidentifier():
        return [f"{where}: a pool's name is a word of letters, digits and underscores, e.g. judges"]
    if not isinstance(entries, Mapping):
        return [
            f"{where}={entries!r}: give {where}.n_gpus_per_node=<devices>, and nnodes where it is"
            " more than 1"
        ]
    unknown: list[str] = []
    wrong: list[str] = []
    for key, value in entries.items():
        if key not in _KEYS:
            unknown.append(f"{where}.{key}: no such entry; known: {', '.join(_KEYS)}")
        elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
            wrong.append(f"{where}.{key}={value!r}: give a whole number, at least 1")
    return unknown + wrong


@dataclass(frozen=True, slots=True)
class Pools:
    """Reserved devices by pool."""

    allocations: Mapping[str, Allocation]

    def host(
        self, pool: str, first: int, environment: Mapping[str, str], *, devices: int = 1
    ) -> RayHost:
        """Return a host for processes that see `devices` devices in the pool, starting with the one
        at `first`."""
        return self.allocations[pool].host(first, environment, devices=devices)

    async def release(self) -> None:
        """Release them all."""
        async with AsyncExitStack() as stack:
            for allocation in self.allocations.values():
                stack.push_async_callback(allocation.release)


async def reserve_pools(
    sizes: Mapping[str, PoolSize],
    *,
    device: str,
    timeout_s: float = 120.0,
    stack_folder: Path | None = None,
) -> Pools:
    """Reserve a placement group for each pool. Raises InfrastructureError, with nothing left
    reserved, when the cluster cannot hold them."""
    from rmrl.cluster.worker_group import allocate_ranks

    allocations: dict[str, Allocation] = {}
    try:
        for name, size in sizes.items():
            asked_by = f"trainer.resource_pools.{name} (n_gpus_per_node x nnodes)"
            where: dict[str, Any] = {"device": device, "nnodes": size.nnodes, "asked_by": asked_by}
            allocations[name] = await allocate_ranks(
                size.devices, timeout_s=timeout_s, stack_folder=stack_folder, **where
            )
    except BaseException:
        await Pools(allocations).release()
        raise
    return Pools(allocations)

"""N processes that act together, one per device: the training group. They meet at rank 0's
address."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from rmrl.cluster.processes import RayHost, RayProcess, call_name, finish, stalled
from rmrl.cluster.watch import loss, unless_lost
from rmrl.errors import ClusterLostError, InfrastructureError
from rmrl.ports import HeldPort

PLACEMENT_TIMEOUT_S = 120.0
"""For places that others may still hold."""
JOIN_TIMEOUT_S = 30.0
"""For machines that may still join, where those that are there cannot be enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLocation:
    """One rank's node and devices."""

    node_id: str
    address: str
    devices: tuple[str, ...]
    """Ids for CUDA_VISIBLE_DEVICES, empty on CPU."""


class Anchor:
    """Runs at each location; reports its place and holds free ports there."""

    def __init__(self) -> None:
        self._ports: list[HeldPort] = []

    def location(self) -> RankLocation:
        context = ray.get_runtime_context()
        devices = tuple(map(str, ray.get_gpu_ids()))
        return RankLocation(
            node_id=context.get_node_id(), address=ray.util.get_node_ip_address(), devices=devices
        )

    def free_port(self) -> int:
        """Return a port on this machine that nobody else is given while the anchor lives."""
        port = HeldPort()
        self._ports.append(port)
        return port.number


@dataclass(slots=True, kw_only=True)
class Allocation:
    """Reserved places for `world_size` ranks, and the anchors that hold them."""

    group: PlacementGroup
    anchors: list[RayProcess]
    locations: list[RankLocation]
    init_method: str
    stack_folder: Path | None = None
    """Folder for the stacks of processes that stall."""

    def host(
        self,
        rank: int,
        environment: Mapping[str, str],
        *,
        devices: int = 1,
        asynchronous: bool = False,
    ) -> RayHost:
        """Return a host for processes on `rank`'s node, seeing `devices` devices from that rank's
        on.

        Raises InfrastructureError when those devices are spread over machines.
        """
        location = self.locations[rank]
        beside = self.locations[rank : rank + devices]
        visible = list(
            chain.from_iterable(each.devices for each in beside if each.node_id == location.node_id)
        )
        if location.devices and len(visible) < devices:
            raise InfrastructureError(
                f"an engine needs {devices} devices on one machine and the cluster reserved"
                f" {len(visible)} of them there; lower tensor_parallel_size, or request whole"
                " machines with n_gpus_per_node"
            )
        variables = dict(environment)
        if location.devices:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(visible)
        return RayHost(
            environment=variables,
            placement=NodeAffinitySchedulingStrategy(node_id=location.node_id, soft=False),
            asynchronous=asynchronous,
            stack_folder=self.stack_folder,
        )

    async def free_port(self) -> int:
        """Return a free port on rank 0's node."""
        return await self.anchors[0].call("free_port", timeout_s=60.0)

    async def release(self) -> None:
        for anchor in self.anchors:
            await anchor.kill()
        if loss() is None:
            remove_placement_group(self.group)


async def allocate_ranks(
    world_size: int,
    *,
    device: str,
    nnodes: int,
    asked_by: str = "trainer.n_gpus_per_node x trainer.nnodes",
    timeout_s: float = PLACEMENT_TIMEOUT_S,
    stack_folder: Path | None = None,
) -> Allocation:
    """Reserve devices (or CPU slots) for world_size / nnodes ranks on each of `nnodes` machines,
    for one on each where there are fewer ranks than machines.

    Ranks on one machine are neighbours; this machine's come first. Raises InfrastructureError,
    which names `asked_by`, when the cluster cannot provide them within `timeout_s`.
    """
    nnodes = min(nnodes, world_size)
    per_node = world_size // nnodes
    gpu = device == "cuda"
    kind = "GPU" if gpu else "CPU"
    resources = {"CPU": float(per_node), kind: float(per_node)}
    group = placement_group([resources] * nnodes, strategy="STRICT_SPREAD")
    try:
        if not _holds(per_node, nnodes, kind):
            timeout_s = min(timeout_s, JOIN_TIMEOUT_S)
        await unless_lost(finish(group.ready(), what="reserving devices", timeout_s=timeout_s))
    except ClusterLostError:
        raise
    except Exception as error:
        remove_placement_group(group)
        raise InfrastructureError(_too_small(asked_by, per_node, nnodes, kind)) from error
    starts: list[Coroutine[Any, Any, RayProcess]] = []
    for rank in range(world_size):
        placement = PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=rank // per_node
        )
        host = RayHost(placement=placement, num_cpus=1.0, num_gpus=float(gpu))
        starts.append(host.spawn("rmrl.cluster.worker_group:Anchor", {}, name=f"anchor-{rank}"))
    anchors = await asyncio.gather(*starts)
    calls = [anchor.call("location", timeout_s=60.0) for anchor in anchors]
    locations = await asyncio.gather(*calls)
    order = neighbours(locations, first=ray.get_runtime_context().get_node_id())
    anchors = [anchors[i] for i in order]
    locations = [locations[i] for i in order]
    port = await anchors[0].call("free_port", timeout_s=60.0)
    return Allocation(
        group=group,
        anchors=anchors,
        locations=locations,
        init_method=f"tcp://{locations[0].address}:{port}",
        stack_folder=stack_folder,
    )


def _holds(per_node: int, nnodes: int, kind: str) -> bool:
    """Return whether the cluster has enough machines, in use or not."""
    machines = sum(
        1 for node in ray.nodes() if node["Alive"] and node["Resources"].get(kind, 0) >= per_node
    )
    return machines >= nnodes


def _too_small(asked_by: str, per_node: int, nnodes: int, kind: str) -> str:
    """Return the error text: the request, and every machine with its resources."""
    if kind == "GPU":
        processes = slots = "GPUs"
    else:
        processes = "processes"
        slots = "CPU slots"
    machines: list[str] = [
        f"{node['NodeManagerAddress']} {node['Resources'].get(kind, 0):g}"
        for node in ray.nodes()
        if node["Alive"]
    ]
    return (
        f"{asked_by} asks for {per_node * nnodes} {processes} on {nnodes} machine(s),"
        f" {per_node} on each; the cluster has {len(machines)} machine(s) with"
        f" {slots}: {', '.join(machines)}, {ray.available_resources().get(kind, 0):g} of them free."
        " Ask for fewer, let more machines join (ray start --address=...), or raise"
        " ray_kwargs.ray_init.num_cpus"
    )


def neighbours(locations: Sequence[RankLocation], *, first: str = "") -> list[int]:
    """Return the locations' positions, one machine's together: first node `first`, then the nodes
    by their first location; devices ascending."""
    nodes = list(dict.fromkeys(location.node_id for location in locations))
    nodes.sort(key=lambda node: node != first)

    def key(position: int) -> tuple[int, list[tuple[int, str]], int]:
        location = locations[position]
        devices = [(len(device), device) for device in location.devices]
        return nodes.index(location.node_id), devices, position

    return sorted(range(len(locations)), key=key)


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """All ranks' processes."""

    workers: Sequence[RayProcess]

    async def call(
        self, method: str, per_rank: Sequence[Sequence[Any]] | None = None, *, timeout_s: float
    ) -> list[Any]:
        """Call the method on every rank at once, with that rank's own arguments, and return the
        results by rank.

        Raises StallError past the deadline, with every rank's stacks, also where it has finished.
        """
        arguments = per_rank if per_rank is not None else [()] * len(self.workers)
        calls = [
            worker.result(method, *args, timeout_s=timeout_s)
            for worker, args in zip(self.workers, arguments, strict=True)
        ]
        try:
            return list(await asyncio.gather(*calls))
        except TimeoutError as error:
            what = call_name(self.workers[0].name.rpartition("-")[0], method, arguments[0])
            raise await stalled(
                self.workers, what, f"did not finish within {timeout_s:g} s on every rank"
            ) from error

    def stored(self, value: Any) -> Any:
        """Return a reference to a value that several ranks get as an argument to `call`. It is
        copied once for all. An argument is a reference itself or holds none."""
        return self.workers[0].stored(value)

    async def kill(self) -> None:
        for worker in self.workers:
            await worker.kill()

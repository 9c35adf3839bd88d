"""N processes that act together, one per device: the training group. Rank 0 tells the others where to meet."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from rmrl.cluster.processes import RayHost, RayProcess, finish
from rmrl.errors import InfrastructureError

PLACEMENT_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where one rank sits."""

    node_id: str
    address: str
    devices: tuple[str, ...]
    """Ids for CUDA_VISIBLE_DEVICES; empty on CPU."""


class Anchor:
    """Runs in each seat: says where it is and finds a free port there."""

    def seat(self) -> Seat:
        context = ray.get_runtime_context()
        devices = tuple(str(i) for i in ray.get_gpu_ids())
        return Seat(node_id=context.get_node_id(), address=ray.util.get_node_ip_address(), devices=devices)

    def free_port(self) -> int:
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])


@dataclass(slots=True, kw_only=True)
class Seats:
    """Reserved places for `world_size` ranks, and the anchors that hold them."""

    group: PlacementGroup
    anchors: list[RayProcess]
    seats: list[Seat]
    init_method: str

    def host(self, rank: int, environment: Mapping[str, str], *, devices: int = 1, asynchronous: bool = False) -> RayHost:
        """A host for processes on the node of `rank`, seeing `devices` devices from that rank's on.

        Raises InfrastructureError when those devices are spread over machines.
        """
        seat = self.seats[rank]
        visible = [d for s in self.seats[rank : rank + devices] if s.node_id == seat.node_id for d in s.devices]
        if seat.devices and len(visible) < devices:
            raise InfrastructureError(
                f"an engine asks for {devices} devices on one machine and the cluster gave {len(visible)} of them there; "
                "lower tensor_parallel_size, or ask for whole machines with n_gpus_per_node"
            )
        variables = {**environment, **({"CUDA_VISIBLE_DEVICES": ",".join(visible)} if seat.devices else {})}
        return RayHost(
            environment=variables,
            placement=NodeAffinitySchedulingStrategy(node_id=seat.node_id, soft=False),
            asynchronous=asynchronous,
        )

    async def release(self) -> None:
        for anchor in self.anchors:
            await anchor.kill()
        remove_placement_group(self.group)


async def reserve_seats(
    world_size: int,
    *,
    device: str,
    nnodes: int,
    asked_by: str = "trainer.n_gpus_per_node x trainer.nnodes",
    timeout_s: float = PLACEMENT_TIMEOUT_S,
) -> Seats:
    """A placement group with one bundle per rank; ranks of one machine are neighbours.

    Raises InfrastructureError, which names `asked_by`, when the cluster cannot hold it.
    """
    bundle = {"CPU": 1.0, "GPU": 1.0} if device == "cuda" else {"CPU": 1.0}
    group = placement_group([bundle] * world_size, strategy="PACK")
    try:
        await finish(group.ready(), what="reserving devices", timeout_s=timeout_s)
    except Exception as error:
        remove_placement_group(group)
        have = ray.cluster_resources()
        raise InfrastructureError(
            f"{asked_by} asks for {world_size} {'GPUs' if device == 'cuda' else 'processes'} on {nnodes} "
            f"machine(s); the cluster has {have.get('GPU', 0):g} GPUs and {have.get('CPU', 0):g} CPU slots: ask for fewer, or raise "
            "ray_kwargs.ray_init.num_cpus"
        ) from error
    anchors = [
        await RayHost(
            placement=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
            num_cpus=1.0,
            num_gpus=1.0 if device == "cuda" else 0.0,
        ).spawn("rmrl.cluster.worker_group:Anchor", {}, name=f"seat-{rank}")
        for rank in range(world_size)
    ]
    seats = [await anchor.call("seat", timeout_s=60.0) for anchor in anchors]
    order = neighbours(seats)
    anchors, seats = [anchors[i] for i in order], [seats[i] for i in order]
    port = await anchors[0].call("free_port", timeout_s=60.0)
    return Seats(group=group, anchors=anchors, seats=seats, init_method=f"tcp://{seats[0].address}:{port}")


def neighbours(seats: Sequence[Seat]) -> list[int]:
    """Positions so that seats of one machine stand together, machines in the order of their first seat, devices ascending."""
    nodes = list(dict.fromkeys(seat.node_id for seat in seats))
    return sorted(range(len(seats)), key=lambda i: (nodes.index(seats[i].node_id), [(len(d), d) for d in seats[i].devices], i))


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """The processes of all ranks."""

    workers: Sequence[RayProcess]

    async def call(self, method: str, per_rank: Sequence[Sequence[Any]] | None = None, *, timeout_s: float) -> list[Any]:
        """The method on every rank at once, with that rank's own arguments; results by rank."""
        arguments = per_rank if per_rank is not None else [()] * len(self.workers)
        calls = [w.call(method, *args, timeout_s=timeout_s) for w, args in zip(self.workers, arguments, strict=True)]
        return list(await asyncio.gather(*calls))

    async def kill(self) -> None:
        for worker in self.workers:
            await worker.kill()

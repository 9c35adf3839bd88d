"""One file for processes on several machines: written on one, copied once to each other.

Every machine's copy lies in its own shared memory and bears the node's id in its name, so that two
nodes that share a machine keep theirs apart too. The bytes travel through Ray's object store in
chunks; at most `_WINDOW` are under way.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rmrl.cluster.processes import RayHost, RayProcess, finish
from rmrl.errors import RmrlError
from rmrl.inference.weights.shared_memory import weight_folder

CHUNK_BYTES = 64 * 2**20
_WINDOW = 2
_REMOVE_TIMEOUT_S = 30.0


class Relay:
    """Lives on one node and handles files there."""

    def __init__(self, node_id: str) -> None:
        self._tag = node_id[:12]

    def place(self, name: str, total_bytes: int) -> str:
        """Return the path for a file with `total_bytes` on this node. Nothing is written. Raises
        InfrastructureError where there is no room."""
        return str(weight_folder(total_bytes) / f"{name}-{self._tag}.safetensors")

    def size(self, path: str) -> int:
        return Path(path).stat().st_size

    def read(self, path: str, offset: int, count: int) -> np.ndarray:
        """Read `count` bytes, fewer where the file ends."""
        return np.fromfile(path, dtype=np.uint8, count=count, offset=offset)

    def write(self, path: str, offset: int, data: np.ndarray) -> int:
        """Write `data` at `offset` and return how many bytes were written."""
        view = data.data
        done = 0
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            while done < len(view):
                done += os.pwrite(descriptor, view[done:], offset + done)
        finally:
            os.close(descriptor)
        return done

    def remove(self, name: str) -> None:
        """Remove all files with that name on this node, half-written ones too."""
        stem = f"{name}-{self._tag}"
        for folder in (Path("/dev/shm"), weight_folder(0)):
            for pattern in (f"{stem}.*", f".{stem}.*"):
                for path in folder.glob(pattern):
                    path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFiles:
    """Makes paths on the node `source` and copies what was written there to every node in
    `targets`."""

    source: str
    targets: tuple[str, ...] = ()
    relays: dict[str, RayProcess] = field(default_factory=dict)
    """Node id -> relay, empty where every process is on the node of this one."""
    timeout_s: float = 600.0
    """Deadline for each chunk."""

    async def place(self, name: str, total_bytes: int) -> str:
        """Return the path on the source node for a new file with `total_bytes`."""
        if not self.relays:
            return Relay(self.source).place(name, total_bytes)
        return await self.relays[self.source].call(
            "place", name, total_bytes, timeout_s=self.timeout_s
        )

    async def spread(self, name: str, path: str) -> dict[str, str]:
        """Copy the file to all targets and return its path by node, the source's own included."""
        paths = {self.source: path}
        if not self.targets:
            return paths
        total = await self.relays[self.source].call("size", path, timeout_s=self.timeout_s)
        places: list[Coroutine[Any, Any, Any]] = []
        for node in self.targets:
            call = self.relays[node].call("place", name, total, timeout_s=self.timeout_s)
            places.append(call)
        paths |= dict(zip(self.targets, await asyncio.gather(*places), strict=True))
        # At most `_WINDOW` chunks are under way.
        writes: deque[list[Any]] = deque()
        for offset in range(0, total, CHUNK_BYTES):
            writes.append(self._copy_chunk(paths, offset))
            if len(writes) >= _WINDOW:
                await self._finish(writes.popleft())
        while writes:
            await self._finish(writes.popleft())
        return paths

    async def remove(self, name: str) -> None:
        """Remove the file and its copies wherever they are. A node that is gone is passed over."""
        if not self.relays:
            Relay(self.source).remove(name)
        removals: list[Coroutine[Any, Any, Any]] = [
            relay.call("remove", name, timeout_s=_REMOVE_TIMEOUT_S)
            for relay in self.relays.values()
        ]
        await asyncio.gather(*removals, return_exceptions=True)

    async def close(self) -> None:
        """End the relays."""
        for relay in self.relays.values():
            await relay.kill()

    def _copy_chunk(self, paths: dict[str, str], offset: int) -> list[Any]:
        """Start copying one chunk to all targets and return the writes under way, by target.

        The chunk's only reference is local: with the last one the store frees its memory.
        """
        source = self.relays[self.source].actor
        chunk = source.call.remote("read", paths[self.source], offset, CHUNK_BYTES)
        writes: list[Any] = []
        for node in self.targets:
            target = self.relays[node].actor
            writes.append(target.call.remote("write", paths[node], offset, chunk))
        return writes

    async def _finish(self, writes: Sequence[Any]) -> None:
        waits: list[Coroutine[Any, Any, Any]] = []
        for node, write in zip(self.targets, writes, strict=True):
            what = f"{self.relays[node].name}.write"
            waits.append(finish(write, what=what, timeout_s=self.timeout_s))
        await asyncio.gather(*waits)


async def node_files(
    source: RayProcess, readers: Sequence[RayProcess], *, timeout_s: float
) -> NodeFiles:
    """Return the `NodeFiles` for files that `source` writes and `readers` read.

    Starts a small process on each node, unless all are on this one.
    """
    this_node = ray.get_runtime_context().get_node_id()
    nodes = list(dict.fromkeys([source.node_id, *(reader.node_id for reader in readers)]))
    if nodes == [this_node]:
        return NodeFiles(source=this_node, timeout_s=timeout_s)

    async def start(node: str) -> RayProcess:
        host = RayHost(placement=NodeAffinitySchedulingStrategy(node_id=node, soft=False))
        return await host.spawn(
            "rmrl.cluster.file_broadcast:Relay", {"node_id": node}, name=f"relay-{node[:8]}"
        )

    starts = await asyncio.gather(*map(start, nodes), return_exceptions=True)
    relays: dict[str, RayProcess] = {
        node: relay
        for node, relay in zip(nodes, starts, strict=True)
        if isinstance(relay, RayProcess)
    }
    files = NodeFiles(
        source=source.node_id, targets=tuple(nodes[1:]), relays=relays, timeout_s=timeout_s
    )
    for failure in starts:
        if isinstance(failure, BaseException):
            with suppress(RmrlError):
                await files.close()
            raise failure
    return files

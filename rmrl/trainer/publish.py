"""New weights from the training processes to the rollout engines, versioned by step: in a file, or
by vLLM's own transfer.

File: one in shared memory; engines on other nodes read a copy in the shared memory of their own
node. Works everywhere.
Transfer: CUDA IPC handles (engines on the training devices) or a broadcast over NCCL (engines with
devices of their own).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from rmrl.cluster.processes import RayProcess
from rmrl.cluster.relay import NodeFiles
from rmrl.inference.weights.sender import TransferLink
from rmrl.trainer.policy import TrainedModel
from rmrl.trainer.rollouts import RolloutPool


class WeightPublisher(Protocol):
    """Protocol: bring the policy's weights to every rollout engine."""

    async def publish(self, version: int) -> int:
        """Make the engines sample with `version` and be awake; return the transferred bytes."""
        ...

    async def close(self) -> None: ...


class Publisher:
    """Publishing through files. Implements WeightPublisher."""

    def __init__(
        self,
        policy: TrainedModel,
        rollouts: RolloutPool,
        *,
        files: NodeFiles,
        engine_nodes: Sequence[str],
        dtype: str,
        size_hint_bytes: int,
    ) -> None:
        """`engine_nodes`: the node of each engine of `rollouts`, in their order; the source of
        `files` is where rank 0 trains.

        `dtype`: type of the published tensors; `size_hint_bytes`: their approximate size, to choose
        a folder with room.
        """
        self._policy = policy
        self._rollouts = rollouts
        self._files = files
        self._engine_nodes = tuple(engine_nodes)
        self._dtype = dtype
        self._size_hint_bytes = size_hint_bytes

    async def publish(self, version: int) -> int:
        """Export, load into the engines (which restores their weights), wake the rest; return the
        file's bytes. No file is left."""
        name = f"rmrl-weights-{os.getpid()}-{version}"
        try:
            path = await self._files.place(name, self._size_hint_bytes)
            async with self._policy.on_device():
                sent = await self._policy.export_weights(path, dtype=self._dtype)
            paths = await self._files.spread(name, path)
            engine_paths = [paths[node] for node in self._engine_nodes]
            await self._rollouts.load_weights(engine_paths, version=version)
            await self._rollouts.wake()
        finally:
            await self._files.remove(name)
        return sent

    async def close(self) -> None:
        """End the processes that copy the bytes between nodes."""
        await self._files.close()


class TransferPublisher:
    """Publishing through vLLM's weight transfer. Implements WeightPublisher."""

    def __init__(
        self,
        policy: TrainedModel,
        rollouts: RolloutPool,
        link: Callable[[Sequence[RayProcess]], TransferLink],
    ) -> None:
        """`link(engines)`: the connection of rank 0 to these engines."""
        self._policy = policy
        self._rollouts = rollouts
        self._link = link
        self._connected: Sequence[RayProcess] = ()

    async def open(self) -> None:
        """Connect training processes and the present engines."""
        link = self._link(self._rollouts.engines)
        group = self._policy.group
        links = [dataclasses.replace(link, rank=rank) for rank in range(group.size)]
        await group.call("open_transfer", [(link,) for link in links])
        self._connected = self._rollouts.engines

    async def publish(self, version: int) -> int:
        """Send the weights and return the tensors' bytes. Training state and the engines' weights
        are on the devices at the same time meanwhile.

        Engines that died since the last call are started first, while no training state is on the
        devices: an engine that starts needs the memory that it has been promised. One that dies
        later ends the run with EngineLostError.
        """
        group = self._policy.group
        if await self._rollouts.find_lost():
            await group.leave()
            await self._rollouts.restart_asleep()
        if self._connected != self._rollouts.engines:
            await self.open()
        async with self._policy.on_device():
            sent = await group.call("send_weights", [(version,)] * group.size)
        self._rollouts.have_weights(version)
        await self._rollouts.wake()
        return max(sent)

    async def close(self) -> None:
        """Do nothing: the connections end with the processes."""

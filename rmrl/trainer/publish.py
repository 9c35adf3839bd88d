"""New weights from the training processes to the rollout engines, versioned by step: in a file, or
by vLLM's own transfer.

File: one in shared memory; engines on other nodes read a copy in the shared memory of their own
node. Works everywhere.
Transfer: CUDA IPC handles (engines on the training devices) or a broadcast over NCCL (engines with
devices of their own).
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from rmrl.cluster.file_broadcast import NodeFiles
from rmrl.cluster.processes import RayProcess
from rmrl.errors import EngineLostError
from rmrl.inference.weights.sender import Sent, TransferLink
from rmrl.trainer.policy import TrainedModel
from rmrl.trainer.rollouts import RolloutPool

_log = logging.getLogger(__name__)

_SENDS = 2
"""Times that one version is sent: an engine may die in the middle of the first."""


class WeightPublisher(Protocol):
    """Protocol: bring the policy's weights to every rollout engine."""

    async def publish(self, version: int) -> int:
        """Make the engines sample with `version` and be awake. Return the transferred bytes."""
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
        """`engine_nodes`: the node of each engine of `rollouts`, in their order. The source of
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
        """Export, load into the engines (which restores their weights), wake the rest. Return the
        file's bytes. No file is left."""
        name = f"rmrl-weights-{os.getpid()}-{version}"
        with self._policy.group.durations("perf/publish/file_s"):
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
        link: Callable[[Sequence[RayProcess]], Awaitable[TransferLink]],
        *,
        after_loss: Callable[[], Awaitable[WeightPublisher]] | None = None,
    ) -> None:
        """`link(engines)`: the connection of rank 0 to these engines. `after_loss`: what publishes
        once an engine has been lost, for a connection that ends with any of them. None: engines
        that were started again are connected anew."""
        self._policy = policy
        self._rollouts = rollouts
        self._link = link
        self._after_loss = after_loss
        self._successor: WeightPublisher | None = None
        self._connected: Sequence[RayProcess] = ()
        self._transport = ""

    async def open(self) -> None:
        """Connect training processes and the present engines."""
        link = await self._link(self._rollouts.engines)
        self._transport = link.transport
        group = self._policy.group
        links = [dataclasses.replace(link, rank=rank) for rank in range(group.size)]
        await group.call("open_transfer", [(link,) for link in links])
        self._connected = self._rollouts.engines

    async def publish(self, version: int) -> int:
        """Send the weights and return the tensors' bytes. Training state and the engines' weights
        are on the devices at the same time meanwhile.

        Engines that died since the last call are started first. Where one dies in the middle, the
        others get the weights to the end, it is started, and all get them once more; with
        `after_loss`, for which such a transfer never ends, EngineLostError.
        """
        group = self._policy.group
        sent: list[Sent] = []
        for _ in range(_SENDS):
            await self._reconnect()
            if self._successor is not None:
                return await self._successor.publish(version)
            with group.durations(f"perf/publish/{self._transport}_s"):
                async with self._policy.on_device():
                    sent = await group.call("send_weights", [(version,)] * group.size)
            if all(part.complete for part in sent):
                break
            if not await self._rollouts.find_lost():
                raise EngineLostError(
                    "a rollout engine could not be reached while new weights were sent to it"
                )
        self._rollouts.have_weights(version)
        await self._rollouts.wake()
        return max(part.bytes for part in sent)

    async def _reconnect(self) -> None:
        """Start the engines that died, and connect them, while no training state is on the devices:
        an engine that starts needs the memory that it has been promised."""
        if self._successor is not None:
            return
        if await self._rollouts.find_lost():
            await self._policy.group.leave()
            await self._rollouts.restart_asleep()
        if self._connected == self._rollouts.engines:
            return
        if self._after_loss is None:
            await self.open()
        else:
            _log.warning("a rollout engine was lost; new weights travel through files from now on")
            self._successor = await self._after_loss()

    async def close(self) -> None:
        """End what has taken over; connections end with the processes."""
        if self._successor is not None:
            await self._successor.close()

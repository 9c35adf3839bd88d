"""New weights travel from the training processes to the rollout engines, versioned by step: in a
file, or as vLLM itself transfers them.

File: one in shared memory; engines on other nodes read a copy in the shared memory of their own
  node. Works everywhere.
Transfer: CUDA IPC handles (engines on the training devices) or a broadcast over NCCL (engines with
  devices of their own).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rmrl.cluster.engine_client import EngineClient
from rmrl.cluster.relay import NodeFiles
from rmrl.inference.weights.sender import TransferLink
from rmrl.trainer.policy import TrainedModel
from rmrl.trainer.rollouts import RolloutPool


class Publishes(Protocol):
    """Brings the policy's weights to every rollout engine."""

    async def publish(self, version: int) -> int:
        """The engines sample with `version` and are awake; returns the bytes that travelled."""
        ...

    async def close(self) -> None: ...


class Publisher:
    """Through files. Implements Publishes."""

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
        """`engine_nodes`: the node of each engine of `rollouts`, in their order; `files` has its
        source where rank 0 trains.

        `dtype`: of the published tensors; `size_hint_bytes`: what they need about, to find a folder
        with room.
        """
        self._policy = policy
        self._rollouts = rollouts
        self._files = files
        self._engine_nodes = tuple(engine_nodes)
        self._dtype = dtype
        self._size_hint_bytes = size_hint_bytes

    async def publish(self, version: int) -> int:
        """Export, load into the engines (which wakes their weights), wake the rest; returns the
        file's bytes. No file is left."""
        name = f"rmrl-weights-{os.getpid()}-{version}"
        try:
            path = await self._files.place(name, self._size_hint_bytes)
            async with self._policy.on_device():
                sent = await self._policy.export_weights(path, dtype=self._dtype)
            paths = await self._files.spread(name, path)
            await self._rollouts.load_weights(
                [paths[node] for node in self._engine_nodes], version=version
            )
            await self._rollouts.wake()
        finally:
            await self._files.remove(name)
        return sent

    async def close(self) -> None:
        """End the processes that carry the bytes between nodes."""
        await self._files.close()


class TransferPublisher:
    """Through vLLM's weight transfer. Implements Publishes."""

    def __init__(self, policy: TrainedModel, rollouts: RolloutPool) -> None:
        self._policy = policy
        self._rollouts = rollouts

    @classmethod
    async def open(
        cls,
        policy: TrainedModel,
        rollouts: RolloutPool,
        *,
        transport: str,
        dtype: str,
        client: EngineClient,
        options: Mapping[str, Any],
    ) -> TransferPublisher:
        """Connect training processes and engines; see TransferLink for `transport` and
        `options`."""
        shared: dict[str, Any] = {
            "transport": transport,
            "client": client,
            "dtype": dtype,
            "options": dict(options),
        }
        links = [TransferLink(rank=rank, **shared) for rank in range(policy.group.size)]
        await policy.group.call("open_transfer", [(link,) for link in links])
        return cls(policy, rollouts)

    async def publish(self, version: int) -> int:
        """The tensors' bytes. Training state and the engines' weights are on the devices at the
        same time while it lasts."""
        async with self._policy.on_device():
            sent = await self._policy.group.call(
                "send_weights", [(version,)] * self._policy.group.size
            )
        await self._rollouts.wake()
        return max(sent)

    async def close(self) -> None:
        """Nothing: the connections end with the processes."""

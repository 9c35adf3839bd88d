"""The policy as the controller sees it: one object, however many processes train it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from rmrl.backends.micro_batches import split_by_length
from rmrl.cluster.worker_group import WorkerGroup
from rmrl.types import Metrics, Ragged, TrainBatch


class Policy:
    """Deals rows to the training processes and puts their answers back in order."""

    def __init__(self, group: WorkerGroup, *, timeout_s: float, offloads: bool) -> None:
        self._group, self._timeout_s, self._offloads = group, timeout_s, offloads
        self._world = len(group.workers)

    async def logprobs(self, batch: TrainBatch) -> Ragged:
        """Log-probabilities of the response tokens under the present weights, rows in the batch's order."""
        return await self._per_row("logprobs", batch)

    async def reference_logprobs(self, batch: TrainBatch) -> Ragged:
        """The same under the frozen reference."""
        return await self._per_row("reference_logprobs", batch)

    async def update(self, mini_batches: Sequence[TrainBatch]) -> Metrics:
        """One optimizer step per mini-batch and epoch."""
        deals = [self._deal(batch) for batch in mini_batches]
        shares = [[batch.select(deal[rank]) for batch, deal in zip(mini_batches, deals, strict=True)] for rank in range(self._world)]
        return (await self._call("update", [(share,) for share in shares]))[0]

    async def export_weights(self, path: str, *, dtype: str) -> int:
        """Write all weights to one file in shared memory; bytes written."""
        return max(await self._call("export_weights", [(path, dtype)] * self._world))

    async def save(self, path: str) -> None:
        await self._call("save", [(path,)] * self._world)

    async def save_hf(self, path: str) -> None:
        """A Hugging Face folder that transformers loads."""
        await self._call("save_hf", [(path,)] * self._world)

    async def load(self, path: str) -> None:
        await self._call("load", [(path,)] * self._world)

    async def memory_bytes(self) -> int:
        """Bytes held by all training processes together."""
        return sum(await self._call("memory_bytes"))

    @asynccontextmanager
    async def on_device(self) -> AsyncIterator[None]:
        """The training state is on its devices for the time of the block, and in host memory after it where offloading was asked for."""
        if self._offloads:
            await self._call("onload")
        try:
            yield
        finally:
            if self._offloads:
                await self._call("offload")

    async def close(self) -> None:
        await self._group.kill()

    async def _per_row(self, method: str, batch: TrainBatch) -> Ragged:
        deal = self._deal(batch)
        parts = await self._call(method, [(batch.select(rows),) for rows in deal])
        placed: list[np.ndarray] = [np.zeros(0, np.float32)] * len(batch)
        for rows, part in zip(deal, parts, strict=True):
            for row, values in zip(rows, part.rows(), strict=True):
                placed[int(row)] = values
        return Ragged.of(placed, np.float32)

    def _deal(self, batch: TrainBatch) -> list[np.ndarray]:
        return split_by_length(batch.tokens.lengths, self._world)

    async def _call(self, method: str, per_rank: Sequence[Sequence[object]] | None = None) -> list[Any]:
        return await self._group.call(method, per_rank, timeout_s=self._timeout_s)

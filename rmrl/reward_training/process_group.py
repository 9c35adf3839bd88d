"""One machine's training processes, as one object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmrl.backends.base import ProcessSettings
from rmrl.backends.micro_batches import split_by_length
from rmrl.cluster.local import LocalHost, LocalProcess
from rmrl.inference.environment import train_environment
from rmrl.ports import HeldPort
from rmrl.reward_training.labelled_batch import Item, batch_of
from rmrl.reward_training.plain_scores import PlainScores
from rmrl.reward_training.reward_engine import RewardSettings
from rmrl.telemetry.progress import LINE_EVERY_S, counting
from rmrl.trainer.allocations import all_or_none
from rmrl.types import Metrics

_WORKER = "rmrl.reward_training.reward_engine:RewardWorker"
_SCORED_TOGETHER = 512
"""Items in one call, behind which the count of scored ones goes on."""


@dataclass(slots=True, kw_only=True)
class ProcessGroup:
    """Items are dealt out to the processes, and their results are put back in order."""

    processes: Sequence[LocalProcess]
    timeout_s: float

    async def update(self, items: Sequence[Item]) -> Metrics:
        """Make one optimizer step. Return its metrics under train/."""
        shares = [[batch_of(share)] for share in self._dealt(items)]
        metrics = (await self._call("update", shares))[0]
        return {f"train/{name.partition('/')[2]}": value for name, value in metrics.items()}

    async def scores(self, items: Sequence[Item]) -> list[list[np.ndarray]]:
        """Return the outputs for each item's responses, float32 [tokens read, n] each. `timeout_s`
        is the deadline of each part of the items."""
        outputs: dict[int, list[np.ndarray]] = {}
        total = len(items)
        with counting("scored", total, unit="rows", log_every_s=LINE_EVERY_S) as update:
            for first in range(0, total, _SCORED_TOGETHER):
                shares = self._dealt(items[first : first + _SCORED_TOGETHER])
                answers = await self._call("scores", [batch_of(share) for share in shares])
                for share, rows in zip(shares, answers, strict=True):
                    start = 0
                    for item in share:
                        outputs[item.number] = rows[start : start + len(item.tokens)]
                        start += len(item.tokens)
                update(len(outputs))
        return [outputs[item.number] for item in items]

    async def everywhere(self, method: str, *args: object) -> list[Any]:
        """Call a method on every engine with the same arguments."""
        calls = [
            process.call("call", method, *args, timeout_s=self.timeout_s)
            for process in self.processes
        ]
        return list(await asyncio.gather(*calls))

    async def memory(self) -> int:
        """Return the bytes in the process with most."""
        calls = [process.call("memory", timeout_s=self.timeout_s) for process in self.processes]
        return max(await asyncio.gather(*calls))

    async def plain_scores(self, folder: str, items: Sequence[Item]) -> PlainScores:
        """Return how transformers alone scores items with the model in a folder. The trained model
        is given up first, so this call is the last one."""
        calls = [process.call("release", timeout_s=self.timeout_s) for process in self.processes]
        await asyncio.gather(*calls)
        return await self.processes[0].call("plain_scores", folder, items, timeout_s=self.timeout_s)

    def _dealt(self, items: Sequence[Item]) -> list[list[Item]]:
        lengths = [item.padded_tokens for item in items]
        shares = split_by_length(lengths, len(self.processes))
        return [[items[int(number)] for number in share] for share in shares]

    async def _call(self, method: str, arguments: Sequence[object]) -> list[Any]:
        calls = [
            process.call("call", method, argument, timeout_s=self.timeout_s)
            for process, argument in zip(self.processes, arguments, strict=True)
        ]
        return list(await asyncio.gather(*calls))


@asynccontextmanager
async def process_group(
    settings: RewardSettings, *, count: int, threads: int, timeout_s: float
) -> AsyncIterator[ProcessGroup]:
    """Start `count` processes with the engine. They end with the block."""
    port = HeldPort("127.0.0.1")
    environment = train_environment(threads=threads)

    async def spawn(rank: int) -> LocalProcess:
        process = ProcessSettings(
            rank=rank,
            world_size=count,
            init_method=f"tcp://127.0.0.1:{port.number}",
            threads=threads,
            timeout_s=timeout_s,
        )
        devices = (rank,) if settings.device == "cuda" else ()
        host = LocalHost(environment, devices)
        return await host.spawn(
            _WORKER, {"settings": settings, "process": process}, name=f"train-rm-{rank}"
        )

    try:
        processes = await all_or_none(*(spawn(rank) for rank in range(count)))
    finally:
        port.close()
    try:
        yield ProcessGroup(processes=processes, timeout_s=timeout_s)
    finally:
        await asyncio.gather(*(process.kill() for process in processes))

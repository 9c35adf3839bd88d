"""The models that train, seen from the controller: one object per role, for any number of
processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.backends.memory import PhaseMemory
from rmrl.backends.micro_batches import split_by_length
from rmrl.backends.row_assignment import RowAssignment
from rmrl.cluster.processes import RayProcess
from rmrl.cluster.worker_group import WorkerGroup
from rmrl.errors import InfrastructureError, StallError
from rmrl.telemetry.clock import Durations
from rmrl.types import Metrics, Ragged, TrainBatch

_MEASURE_TIMEOUT_S = 10.0


class TrainGroup:
    """Processes that act together. Each has its part of one or several models
    (rmrl.backends.worker.TrainWorker)."""

    def __init__(
        self, workers: WorkerGroup, *, timeout_s: float, offloads: bool, shares_gpus: bool = False
    ) -> None:
        """`offloads`: the training state waits in host memory between phases; `shares_gpus`:
        engines use the same GPUs between phases."""
        self._workers = workers
        self._timeout_s = timeout_s
        self._offloads = offloads
        self._shares_gpus = shares_gpus
        self.durations = Durations()
        self._present = False
        """The training state stayed on its devices after the last block."""

    @property
    def size(self) -> int:
        """Number of processes."""
        return len(self._workers.workers)

    @property
    def first(self) -> RayProcess:
        """Rank 0, which writes the weights that are published."""
        return self._workers.workers[0]

    @property
    def processes(self) -> Sequence[RayProcess]:
        """The processes by rank."""
        return self._workers.workers

    async def call(
        self, method: str, per_rank: Sequence[Sequence[object]] | None = None
    ) -> list[Any]:
        """Call a method of the worker on every rank at once. Return the results by rank."""
        return await self._workers.call(method, per_rank, timeout_s=self._timeout_s)

    def stored(self, value: object) -> object:
        return self._workers.stored(value)

    @asynccontextmanager
    async def on_device(self, *, stays: bool = False) -> AsyncIterator[None]:
        """Move the training state to its devices for the block, and to host memory after it where
        offloading is configured. Optimizer state moves by itself, for the optimizer's steps.

        `stays`: it remains on the devices after the block, for the next one or until `leave`.
        Nothing else may use them until then.

        On GPUs that engines use as well, memory that torch has cached is given back after the block
        even where nothing is offloaded: an engine that wakes allocates outside of torch's cache.

        After an error it stays: the run ends, and a process that still waits for a failed one would
        answer only at the deadline.
        """
        if self._offloads and not self._present:
            with self.durations("perf/train/onload_s"):
                await self.call("onload")
        self._present = False
        yield
        self._present = True
        if not stays:
            await self.leave()

    async def leave(self) -> None:
        """End the stay of a block with `stays`; does nothing where none has stayed."""
        if not self._present:
            return
        self._present = False
        if self._offloads or self._shares_gpus:
            with self.durations("perf/train/offload_s"):
                await self.call("offload")

    async def phase_memory(self) -> list[PhaseMemory]:
        """Return the memory of each process since the last call, by rank. Nothing where they do not
        answer, which their next call reports."""
        with contextlib.suppress(InfrastructureError, StallError):
            return await self._workers.call("phase_memory", timeout_s=_MEASURE_TIMEOUT_S)
        return []

    async def close(self) -> None:
        await self._workers.kill()


class TrainedModel:
    """One role's model. Rows are distributed over its group's processes, and their results
    are put back in order."""

    def __init__(
        self, group: TrainGroup, role: str, assignment: RowAssignment | None = None
    ) -> None:
        """`role`: actor, ref or critic. `assignment`: the rows of each process. None: each has its
        own."""
        ranks = tuple(range(group.size))
        self.group = group
        self._role = role
        self._assignment = assignment or RowAssignment(ranks, ranks)

    async def logprobs(self, batch: TrainBatch) -> Ragged:
        """Return log-probabilities of the response tokens under the present weights, rows in the
        batch's order."""
        return (await self._per_row("logprobs", batch))[0]

    async def logprobs_and_energies(self, batch: TrainBatch) -> tuple[Ragged, Ragged]:
        """Return log-probabilities and energies of the response tokens, both of one forward pass,
        rows in the batch's order."""
        logprobs, energies = await self._per_row("logprobs_and_energies", batch)
        return logprobs, energies

    async def values(self, batch: TrainBatch) -> Ragged:
        """Return the critic's value before each response token, rows in the batch's order."""
        return (await self._per_row("values", batch))[0]

    async def update(self, mini_batches: Sequence[TrainBatch]) -> Metrics:
        """Take one optimizer step per mini-batch and epoch."""
        shares: list[list[TrainBatch]] = [[] for _ in self._assignment.output_ranks]
        for batch in mini_batches:
            for share, part in zip(shares, self._deal(batch)[1], strict=True):
                share.append(part)
        return (await self._on_shares("update", shares))[0]

    async def export_weights(self, path: str, *, dtype: str) -> int:
        """Write all weights to one file in shared memory. Return the number of bytes."""
        with self.group.durations("perf/publish/export_s"):
            return await self._export(path, dtype)

    async def _export(self, path: str, dtype: str) -> int:
        return max(await self._everywhere("export_weights", path, dtype))

    async def save(self, path: str) -> None:
        await self._everywhere("save", path)

    async def save_hf(self, path: str) -> None:
        """Write a Hugging Face folder that transformers loads."""
        await self._everywhere("save_hf", path)

    async def load(self, path: str) -> None:
        await self._everywhere("load", path)

    def on_device(self) -> AbstractAsyncContextManager[None]:
        return self.group.on_device()

    def _deal(self, batch: TrainBatch) -> tuple[list[np.ndarray], list[TrainBatch]]:
        """Return row numbers and rows of each share."""
        numbers = split_by_length(batch.tokens.lengths, len(self._assignment.output_ranks))
        return numbers, [batch.select(rows) for rows in numbers]

    async def _per_row(self, method: str, batch: TrainBatch) -> list[Ragged]:
        """Return what the method answers, one or several numbers per response token, in the batch's
        order."""
        numbers, shares = self._deal(batch)
        answers = [
            answer if isinstance(answer, tuple) else (answer,)
            for answer in await self._on_shares(method, shares)
        ]
        streams: list[Ragged] = []
        for parts in zip(*answers, strict=True):
            placed: list[np.ndarray] = [np.zeros(0, np.float32)] * len(batch)
            for rows, part in zip(numbers, parts, strict=True):
                for row, values in zip(rows, part.rows(), strict=True):
                    placed[int(row)] = values
            streams.append(Ragged.of(placed, np.float32))
        return streams

    async def _on_shares(self, method: str, shares: Sequence[object]) -> list[Any]:
        """Call every process on its share's rows. Return the answers by share.

        Rows of a share that several processes work on (tensor, pipeline and context parallel ranks)
        are copied once for all of them.
        """
        share_of = self._assignment.share_of
        rows = list(shares)
        for share, count in Counter(share_of).items():
            if count > 1:
                rows[share] = self.group.stored(rows[share])
        answers = await self._call(method, [(rows[share],) for share in share_of])
        return [answers[rank] for rank in self._assignment.output_ranks]

    async def _everywhere(self, method: str, *args: object) -> list[Any]:
        return await self._call(method, [args] * self.group.size)

    async def _call(self, method: str, per_rank: Sequence[Sequence[object]]) -> list[Any]:
        return await self.group.call("on", [(self._role, method, *args) for args in per_rank])


class Models:
    """All models of training, the frozen reference included, and their groups of processes."""

    def __init__(
        self,
        actor: TrainedModel,
        *,
        reference: TrainedModel | None = None,
        critic: TrainedModel | None = None,
    ) -> None:
        self.actor = actor
        self.reference = reference
        self.critic = critic
        self.device_name = ""
        """Name of the devices that train, once a phase was measured; "" for CPUs."""

    @property
    def processes(self) -> list[RayProcess]:
        """The processes of all groups."""
        return list(chain.from_iterable(group.processes for group in self._groups()))

    @property
    def apart(self) -> bool:
        """True if the critic trains in separate processes."""
        return self.critic is not None and self.critic.group is not self.actor.group

    async def side_by_side(
        self, *work: Callable[[], Coroutine[Any, Any, dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        """Run the work of policy and critic at once where they train in separate processes, else
        one after the other."""
        if self.apart:
            return await asyncio.gather(*(one() for one in work))
        return [await one() for one in work]

    @asynccontextmanager
    async def on_device(self, *, stays: bool = False) -> AsyncIterator[None]:
        """Move every model to its devices for the block. See TrainGroup.on_device."""
        async with AsyncExitStack() as stack:
            for group in self._groups():
                await stack.enter_async_context(group.on_device(stays=stays))
            yield

    async def leave(self) -> None:
        """End the stay of every model. See TrainGroup.leave."""
        for group in self._groups():
            await group.leave()

    async def phase_memory(self, phase: str) -> Metrics:
        """Return the memory of a phase that has ended, of the process with most: on CUDA
        `memory/<phase>/peak_bytes` and `reserved_bytes`, on CPU `resident_bytes`."""
        out: Metrics = {}
        for group in self._groups():
            for memory in await group.phase_memory():
                self.device_name = memory.device
                for name, value in memory.bytes.items():
                    key = f"memory/{phase}/{name}"
                    out[key] = max(out.get(key, 0.0), float(value))
        return out

    def take_durations(self) -> Metrics:
        """Return the seconds of moves and exports since the last call."""
        out: Metrics = {}
        for group in self._groups():
            for name, seconds in group.durations.take().items():
                out[name] = out.get(name, 0.0) + seconds
        return out

    async def start_profile(self) -> None:
        """Begin a torch profiler trace in every process."""
        for group in self._groups():
            await group.call("start_profile")

    async def write_profile(self, folder: Path, step: int) -> None:
        """End the traces and write a file for each process: step_<step>-<process>.json."""
        for group in self._groups():
            paths: list[tuple[str]] = [
                (str(folder / f"step_{step:06d}-{process.name}.json"),)
                for process in group.processes
            ]
            await group.call("write_profile", paths)

    async def close(self) -> None:
        """End every process, even if ending another one raises."""
        async with AsyncExitStack() as stack:
            for group in self._groups():
                stack.push_async_callback(group.close)

    def _groups(self) -> list[TrainGroup]:
        models = [model for model in (self.actor, self.reference, self.critic) if model is not None]
        return list(dict.fromkeys(model.group for model in models))

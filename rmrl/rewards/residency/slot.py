"""One engine's life cycle, and the cost of each stage.

unloaded --load--> awake --sleep--> asleep --wake--> awake
    ^---------------- unload -----------'
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from rmrl.errors import (
    EngineLoadError,
    EngineLostError,
    InfrastructureError,
    StallError,
    first_line,
)
from rmrl.heartbeat import heartbeat
from rmrl.inference.loading import twice_where_memory_moved
from rmrl.interfaces import ProcessHandle, ProcessHost
from rmrl.rewards.residency.plan import EnginePlan
from rmrl.rewards.residency.replicas import Replicas, spawn_all
from rmrl.types import Metrics

_log = logging.getLogger(__name__)

PROCESS_FACTORY = "rmrl.inference.reward_engines:build_engine"
_SLEEP_LEVEL = {"sleep1": 1, "sleep2": 2}
_SLEEP_DEADLINE_S = 300.0
_MEASURE_DEADLINE_S = 30.0

HostOf = Callable[[EnginePlan], ProcessHost]
"""Host for an engine's process. The plan's `devices` are that process's devices."""


@dataclass(slots=True, eq=False)
class Slot:
    """An engine and its process. Changes to its state need `lock`."""

    plan: EnginePlan
    host_of: HostOf
    state: str = "unloaded"
    """unloaded, awake or asleep."""
    handle: ProcessHandle | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    """Number of calls that use the engine or wait for it. With 0 the engine may be put away."""
    reserved: bool = False
    """Whether the engine's awake bytes are reserved: the engine is being loaded or woken."""
    last_used: int = 0
    """Larger is later. 0: never."""
    lost: str = ""
    """Reason why the process ended without being put away. "" once the engine is awake again."""
    metrics: Metrics = field(default_factory=dict)
    resident_bytes: float = 0.0
    """Measured at the last load or wake."""
    asleep_bytes: int | None = None
    """Measured at the first sleep, on each of the engine's GPUs. None: not measured."""

    @property
    def held_bytes(self) -> int:
        """Return the bytes on each of the engine's devices now: the planned bytes, or the measured
        bytes asleep on a GPU."""
        if self.reserved or self.state == "awake":
            return self.plan.awake_bytes
        if self.state == "asleep":
            return self.plan.away_bytes if self.asleep_bytes is None else self.asleep_bytes
        return 0

    async def ensure_awake(self) -> None:
        """Wake or load the engine. Raises EngineLoadError, StallError, or any error from the
        engine's start."""
        if self.state == "asleep":
            assert self.handle is not None
            started = time.perf_counter()
            try:
                await self.handle.call("wake", timeout_s=self.plan.load_timeout_s)
            except EngineLostError:
                _log.warning(f"engine of {self.plan.label} died in its sleep; starting it again")
                self.lost = "its process died in its sleep"
                await self.unload()
            except BaseException:
                # It may be half awake.
                await self.unload()
                raise
            else:
                await self._is_awake("wake", started)
        if self.state == "unloaded":
            await self._load()

    async def put_away(self) -> None:
        """Sleep or unload the engine, as planned. Does nothing when the engine is not awake."""
        if self.handle is None or self.state != "awake":
            return
        level = _SLEEP_LEVEL.get(self.plan.put_away)
        if level is None:
            await self.unload()
            return
        started = time.perf_counter()
        try:
            await self.handle.call("sleep", level, timeout_s=_SLEEP_DEADLINE_S)
        except (InfrastructureError, StallError) as error:
            _log.warning(
                f"engine of {self.plan.label} could not be put to sleep and is unloaded instead:"
                f" {error}"
            )
            await self.unload()
            return
        except BaseException:
            # Its state is unknown.
            await self.unload()
            raise
        self.state = "asleep"
        self.count("sleep", started)
        measured = await self._measured()
        self.add("freed_bytes", max(0.0, self.resident_bytes - measured))
        # A CPU process's resident memory includes pages that it shares with others.
        on_gpu = self.plan.spec.device == "cuda"
        if self.asleep_bytes is not None or not measured or not on_gpu:
            return
        self.asleep_bytes = round(measured / len(self.plan.devices))
        if self.asleep_bytes > self.plan.away_bytes:
            _log.warning(
                f"engine of {self.plan.label} holds {self.asleep_bytes / 2**30:.2f} GiB asleep, and"
                f" {self.plan.away_bytes / 2**30:.2f} GiB were planned: the other engines of its"
                " devices have that much less, and sleeping ones are unloaded where it is too"
                " little; put_away=unload frees all of it"
            )

    async def probe(self, timeout_s: float) -> None:
        """Set `lost` if the engine's process has ended. A process at work counts as alive."""
        if self.handle is None or self.state == "unloaded" or self.users:
            return
        try:
            with contextlib.suppress(StallError):
                await self.handle.alive(timeout_s=timeout_s)
        except InfrastructureError as error:
            self.lost = self.lost or first_line(error)

    async def unload(self) -> None:
        """End the engine's process. Its memory returns to the machine."""
        handle = self.handle
        self.handle = None
        if handle is None:
            self.state = "unloaded"
            return
        started = time.perf_counter()
        was_awake = self.state == "awake"
        try:
            await handle.kill()
        finally:
            self.state = "unloaded"
        self.count("unload", started)
        if was_awake:
            self.add("freed_bytes", self.resident_bytes)

    def count(self, what: str, started: float) -> None:
        """Count one more `what`, and add the seconds since `started`."""
        self.add(f"{what}_s", time.perf_counter() - started)
        self.add(f"{what}s", 1.0)

    def add(self, what: str, amount: float) -> None:
        """Add to engine/<label>/<what>."""
        key = f"engine/{self.plan.label}/{what}"
        self.metrics[key] = self.metrics.get(key, 0.0) + amount

    async def _load(self) -> None:
        await twice_where_memory_moved(self._load_once)

    async def _load_once(self) -> None:
        started = time.perf_counter()
        plan = self.plan
        _log.info(f"loading {plan.spec.path} for {plan.label}")
        self.handle = await self._spawn()
        try:
            async with heartbeat(f"still loading {plan.spec.path} for {plan.label}"):
                await self.handle.call("start", timeout_s=plan.load_timeout_s)
        except EngineLostError as error:
            self.lost = "its process died while it was loading"
            await self.unload()
            raise EngineLoadError(
                f"the engine of {plan.label} ({plan.spec.path}) died while it was loading, most"
                f" often for want of memory: {error}"
            ) from error
        except BaseException:
            await self.unload()
            raise
        await self._is_awake("load", started)

    async def _spawn(self) -> ProcessHandle:
        plan = self.plan
        name = f"reward-{plan.label}"
        spec = plan.spec
        if plan.gpu_share is not None:
            spec = replace(spec, gpu_memory_utilization=plan.gpu_share)
        settings = {"spec": spec}
        if plan.replicas == 1:
            return await self.host_of(plan).spawn(PROCESS_FACTORY, settings, name=name)
        spawns: list[Coroutine[Any, Any, ProcessHandle]] = []
        for number in range(plan.replicas):
            host = self.host_of(plan.of_replica(number))
            spawns.append(host.spawn(PROCESS_FACTORY, settings, name=f"{name}-{number}"))
        return Replicas(await spawn_all(spawns))

    async def _is_awake(self, how: str, started: float) -> None:
        self.state = "awake"
        self.lost = ""
        self.count(how, started)
        assert self.handle is not None
        self.handle.remember_family()
        self.resident_bytes = await self._measured()
        self.metrics[f"engine/{self.plan.label}/bytes"] = self.resident_bytes

    async def _measured(self) -> float:
        """Return the bytes that the engine's processes hold. Return 0 where they do not answer,
        which the next call reports."""
        assert self.handle is not None
        with contextlib.suppress(InfrastructureError, StallError):
            return float(await self.handle.call("resident_bytes", timeout_s=_MEASURE_DEADLINE_S))
        return 0.0

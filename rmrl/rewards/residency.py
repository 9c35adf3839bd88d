"""A reward model costs memory only while it scores: engines are loaded, woken, used and put away here.

    unloaded --spawn--> awake --put away (sleep1 | sleep2)--> asleep --wake--> awake
        ^------------------- put away (unload) -------------------'

Engines live in processes of their own (a `ProcessHost` makes them), so unloading returns every byte. A process that dies is
started once more and its requests are sent again; a second death is an EngineLostError.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from rmrl.errors import EngineLoadError, EngineLostError, InfrastructureError, StallError
from rmrl.rewards.engines.base import EngineSpec
from rmrl.rewards.spec import RewardSpec
from rmrl.types import Metrics, ProcessHandle, ProcessHost

PROCESS_FACTORY = "rmrl.rewards.engines:build_engine"
_SLEEP_LEVEL = {"sleep1": 1, "sleep2": 2}
_SLEEP_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """One engine and the rewards that share it."""

    spec: EngineSpec
    rewards: tuple[str, ...]
    residency: str
    """on_demand or resident."""
    put_away: str
    """sleep1, sleep2 or unload."""
    load_timeout_s: float

    @property
    def label(self) -> str:
        return "+".join(self.rewards)


def plan_engines(specs: Sequence[RewardSpec]) -> list[EnginePlan]:
    """One plan per distinct engine, in the order of first use. Resident wins where rewards of one engine disagree."""
    groups: dict[Any, list[RewardSpec]] = {}
    for spec in specs:
        if spec.engine is not None:
            groups.setdefault(spec.engine.key, []).append(spec)
    return [_plan(group) for group in groups.values()]


def _plan(group: list[RewardSpec]) -> EnginePlan:
    first = group[0]
    assert first.engine is not None
    return EnginePlan(
        spec=first.engine,
        rewards=tuple(spec.name for spec in group),
        residency="resident" if any(spec.residency == "resident" for spec in group) else "on_demand",
        put_away=_put_away(first.put_away, first.engine),
        load_timeout_s=max(spec.load_timeout_s for spec in group),
    )


def _put_away(asked: str, engine: EngineSpec) -> str:
    """auto: CUDA keeps weights in host memory (level 1); CPU, where host memory is the device, drops them (level 2). Only vLLM sleeps."""
    if engine.name == "hf":
        return "unload"
    if asked != "auto":
        return asked
    return "sleep1" if engine.device == "cuda" else "sleep2"


@dataclass(slots=True)
class _Slot:
    plan: EnginePlan
    state: str = "unloaded"
    handle: ProcessHandle | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    metrics: Metrics = field(default_factory=dict)

    def note(self, what: str, started: float) -> None:
        """Add the seconds since `started` to this engine's counters."""
        key = f"engine/{self.plan.label}/{what}"
        self.metrics[f"{key}_s"] = self.metrics.get(f"{key}_s", 0.0) + time.perf_counter() - started
        self.metrics[f"{key}s"] = self.metrics.get(f"{key}s", 0.0) + 1


class Engine:
    """What a reward sees of an awake engine: calls that survive one death of the process."""

    def __init__(self, residency: Residency, slot: _Slot) -> None:
        self._residency, self._slot = residency, slot

    async def call(self, method: str, requests: list[Any], *, timeout_s: float) -> list[Any]:
        """One result per request. Raises EngineLostError when the process dies twice, StallError past the deadline."""
        try:
            return await self._call_once(method, requests, timeout_s)
        except EngineLostError:
            await self._residency.restart(self._slot)
        try:
            return await self._call_once(method, requests, timeout_s)
        except EngineLostError as error:
            raise EngineLostError(
                f"the engine of {self._slot.plan.label} ({self._slot.plan.spec.path}) died, was started again "
                f"and died on the same requests: {error}"
            ) from error

    async def _call_once(self, method: str, requests: list[Any], timeout_s: float) -> list[Any]:
        assert self._slot.handle is not None
        return await self._slot.handle.call(method, requests, timeout_s=timeout_s)


class Residency:
    """All engines of one run. `host` makes their processes; `notice` gets one line per load."""

    def __init__(self, host: ProcessHost, plans: Sequence[EnginePlan], *, notice: Callable[[str], None] = lambda _: None) -> None:
        self._host, self._notice = host, notice
        self._slots = {plan.spec.key: _Slot(plan) for plan in plans}

    @property
    def states(self) -> Mapping[str, str]:
        """Label of each engine -> unloaded, awake or asleep."""
        return {slot.plan.label: slot.state for slot in self._slots.values()}

    def order(self) -> list[Any]:
        """Engine keys so that what is awake scores first, then what only sleeps, then what must be loaded."""
        rank = {"awake": 0, "asleep": 1, "unloaded": 2}
        return sorted(self._slots, key=lambda key: rank[self._slots[key].state])

    @asynccontextmanager
    async def use(self, key: Any) -> AsyncGenerator[Engine]:
        """The engine, awake for the time of the block; put away after it unless resident, unloaded where it was lost or cancelled."""
        slot = self._slots[key]
        async with slot.lock:
            await self._ensure_awake(slot)
            try:
                yield Engine(self, slot)
            except (InfrastructureError, StallError, asyncio.CancelledError):
                # Lost, hung, or still busy with calls nobody waits for: an orderly sleep would wait behind them.
                await self._unload(slot)
                raise
            finally:
                if slot.plan.residency != "resident":
                    await self._put_away(slot)

    async def load_resident(self) -> None:
        """Start what stays in memory all the time, before the first step needs it."""
        for slot in self._slots.values():
            if slot.plan.residency == "resident":
                async with slot.lock:
                    await self._ensure_awake(slot)

    async def close(self) -> None:
        """End every engine process."""
        for slot in self._slots.values():
            await self._unload(slot)

    def take_metrics(self) -> Metrics:
        """Seconds and counts of loads, wakes and sleeps since the last call."""
        taken: Metrics = {}
        for slot in self._slots.values():
            taken |= slot.metrics
            slot.metrics = {}
        return taken

    async def restart(self, slot: _Slot) -> None:
        """The process is gone: make another. Its first death is forgiven, the caller counts."""
        self._notice(f"engine of {slot.plan.label} died; starting it again")
        await self._unload(slot)
        await self._ensure_awake(slot)

    async def _ensure_awake(self, slot: _Slot) -> None:
        if slot.state == "asleep":
            await self._wake(slot)
        if slot.state == "unloaded":
            await self._load(slot)

    async def _load(self, slot: _Slot) -> None:
        started, plan = time.perf_counter(), slot.plan
        self._notice(f"loading {plan.spec.path} for {plan.label}")
        slot.handle = await self._host.spawn(PROCESS_FACTORY, {"spec": plan.spec}, name=f"reward-{plan.label}")
        try:
            await slot.handle.call("start", timeout_s=plan.load_timeout_s)
        except EngineLostError as error:
            await self._unload(slot)
            raise EngineLoadError(
                f"the engine of {plan.label} ({plan.spec.path}) died while it was loading, most often for want of memory: {error}"
            ) from error
        except BaseException:
            await self._unload(slot)
            raise
        slot.state = "awake"
        slot.note("load", started)

    async def _wake(self, slot: _Slot) -> None:
        assert slot.handle is not None
        started = time.perf_counter()
        try:
            await slot.handle.call("wake", timeout_s=slot.plan.load_timeout_s)
        except EngineLostError:
            self._notice(f"engine of {slot.plan.label} died in its sleep; starting it again")
            await self._unload(slot)
            return
        slot.state = "awake"
        slot.note("wake", started)

    async def _put_away(self, slot: _Slot) -> None:
        if slot.handle is None or slot.state != "awake":
            return
        level = _SLEEP_LEVEL.get(slot.plan.put_away)
        if level is None:
            await self._unload(slot)
            return
        started = time.perf_counter()
        try:
            await slot.handle.call("sleep", level, timeout_s=_SLEEP_DEADLINE_S)
        except (InfrastructureError, StallError) as error:
            self._notice(f"engine of {slot.plan.label} could not be put to sleep and is unloaded instead: {error}")
            await self._unload(slot)
            return
        slot.state = "asleep"
        slot.note("sleep", started)

    async def _unload(self, slot: _Slot) -> None:
        handle, slot.handle, slot.state = slot.handle, None, "unloaded"
        if handle is not None:
            await handle.kill()

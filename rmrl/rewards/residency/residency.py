"""Keeps engines within their memory: makes room before one is loaded or woken, and leaves room when
scoring is over.

What scored last scores first in the next step, and the least recently used is put away first: over
the steps the order zig-zags (A B C, C B A, ...) and only what does not fit beside the others is
ever swapped.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rmrl.errors import EngineLostError, InfrastructureError, MemoryPlanError, StallError
from rmrl.rewards.residency.budget import Budget
from rmrl.rewards.residency.placing import turns
from rmrl.rewards.residency.plan import EnginePlan
from rmrl.rewards.residency.read_ahead import ReadAhead
from rmrl.rewards.residency.slot import HostOf, Slot
from rmrl.types import Metrics

_RANK = {"awake": 0, "asleep": 1, "unloaded": 2}


class Engine:
    """What a reward sees of an awake engine: calls that survive one death of the process."""

    def __init__(self, residency: Residency, slot: Slot) -> None:
        self._residency, self._slot = residency, slot

    async def call(self, method: str, requests: list[Any], *, timeout_s: float) -> list[Any]:
        """One result per request. Raises EngineLostError when the process dies twice, StallError
        past the deadline."""
        try:
            return await self._call_once(method, requests, timeout_s)
        except EngineLostError:
            await self._residency.restart(self._slot)
        try:
            return await self._call_once(method, requests, timeout_s)
        except EngineLostError as error:
            raise EngineLostError(
                f"the engine of {self._slot.plan.label} ({self._slot.plan.spec.path}) died, was"
                f" started again and died on the same requests: {error}"
            ) from error

    async def _call_once(self, method: str, requests: list[Any], timeout_s: float) -> list[Any]:
        assert self._slot.handle is not None
        return await self._slot.handle.call(method, requests, timeout_s=timeout_s)


class Residency:
    """All engines of one run. `host_of` makes their processes; `notice` gets one line per load.

    `budget` bounds what the engines of a place may hold by their plans' `awake_bytes` and
    `away_bytes`; None: unlimited.
    """

    def __init__(
        self,
        host_of: HostOf,
        plans: Sequence[EnginePlan],
        *,
        budget: Budget | None = None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._slots = {plan.key: Slot(plan, host_of, notice) for plan in plans}
        self._budget, self._notice = budget or Budget(), notice
        self._turns = turns(plans)
        self._room = {plan.place: asyncio.Condition() for plan in plans}
        self._uses = itertools.count(1)
        self._reading: dict[Hashable, ReadAhead] = {}

    @property
    def states(self) -> Mapping[str, str]:
        """Label of each engine -> unloaded, awake or asleep."""
        return {slot.plan.label: slot.state for slot in self._slots.values()}

    def order(self, keys: Iterable[Hashable] | None = None) -> list[Hashable]:
        """The keys (None: all) so that one round through them swaps least.

        Awake ones first, then what only sleeps, then what must be loaded; among equals the most
        recently used first.
        """
        asked = list(self._slots if keys is None else keys)
        return sorted(
            asked, key=lambda key: (_RANK[self._slots[key].state], -self._slots[key].last_used)
        )

    def turn_of(self, key: Hashable) -> Hashable:
        """Engines of equal turn share a device and score one after another; the others may score at
        the same time."""
        return self._turns[key]

    @asynccontextmanager
    async def use(self, key: Hashable) -> AsyncGenerator[Engine]:
        """The engine, awake for the time of the block; others are put away for it where memory is
        short.

        After the block an on_demand engine is put away; any engine that was lost, hung or left busy
        is unloaded. Raises MemoryPlanError when it cannot fit beside what must stay, StallError
        when others hold its memory for too long.
        """
        slot = self._slots[key]
        slot.users += 1
        try:
            async with slot.lock:
                await self._wake(slot)
                try:
                    yield Engine(self, slot)
                except (InfrastructureError, StallError, asyncio.CancelledError):
                    # Lost, hung, or still busy with calls nobody waits for: an orderly sleep would
                    # wait behind them.
                    await slot.unload()
                    raise
                finally:
                    slot.last_used = next(self._uses)
                    if slot.plan.residency == "on_demand":
                        await slot.put_away()
        finally:
            slot.users -= 1
            await self._memory_changed(slot.plan.place)

    def read_ahead(self, key: Hashable) -> None:
        """Begin to read the engine's weights into the page cache, in the background; nothing where
        they need not be read."""
        slot = self._slots[key]
        read_from_disk = slot.state == "unloaded" or (
            slot.state == "asleep" and slot.plan.put_away == "sleep2"
        )
        if read_from_disk and key not in self._reading:
            self._reading[key] = ReadAhead(slot.plan.spec.path)
            self._reading[key].start()

    async def settle(self) -> None:
        """Scoring is over: put idle engines away, least recently used first, until the others need
        no more than the idle budget."""
        for place in self._room:
            limit = self._budget.idle(place)
            if limit is None:
                continue
            async with self._room[place]:
                while victim := self._victim(self._overfull(place, limit), ("auto",), place):
                    await self._put_away(victim)

    async def load_resident(self) -> None:
        """Start what stays in memory all the time, before the first step needs it."""
        for key, slot in self._slots.items():
            if slot.plan.residency == "resident":
                async with self.use(key):
                    pass

    async def close(self) -> None:
        """End every engine process."""
        for key in list(self._reading):
            self._stop_reading(key)
        for slot in self._slots.values():
            await slot.unload()

    def take_metrics(self) -> Metrics:
        """engine/<label>/...: counts and seconds of loads, wakes, sleeps and unloads, evictions
        (put away for another engine), bytes (held after the last load or wake), freed_bytes,
        read_ahead_bytes and read_ahead_s, since the last call.
        """
        for key in [key for key, reading in self._reading.items() if reading.done]:
            self._stop_reading(key)
        taken: Metrics = {}
        for slot in self._slots.values():
            taken |= slot.metrics
            slot.metrics = {}
        return taken

    async def restart(self, slot: Slot) -> None:
        """The process is gone: make another. Its first death is forgiven, the caller counts."""
        self._notice(f"engine of {slot.plan.label} died; starting it again")
        await slot.unload()
        await self._wake(slot)

    # --- memory

    async def _wake(self, slot: Slot) -> None:
        """Make it awake; the caller holds its lock."""
        self._stop_reading(slot.plan.key)
        if slot.state == "awake":
            return
        await self._make_room(slot)
        try:
            await slot.ensure_awake()
        finally:
            slot.reserved = False

    async def _make_room(self, slot: Slot) -> None:
        """Evict until the engine's awake bytes fit, then reserve them; waits while engines in use
        are in the way."""
        plan, limit = slot.plan, self._budget.scoring(slot.plan.place)
        room = self._room[plan.place]
        async with room:
            while limit is not None and (
                overfull := self._overfull(plan.place, limit, coming=slot)
            ):
                victim = self._victim(overfull, ("auto", "on_demand"), plan.place)
                if victim is not None:
                    victim.add("evictions", 1.0)
                    await self._put_away(victim)
                    continue
                await self._wait_for_others(slot, overfull, limit)
            slot.reserved = True

    async def _wait_for_others(self, slot: Slot, overfull: set[int], limit: int) -> None:
        others = [s for s in self._on(overfull, slot.plan.place) if s is not slot and s.held_bytes]
        holding = ", ".join(f"{s.plan.label} {_gib(s.held_bytes)}" for s in others) or "nothing"
        need = (
            f"the engine of {slot.plan.label} needs {_gib(slot.plan.awake_bytes)} of {_gib(limit)},"
            f" held by others: {holding}"
        )
        if not any(s.users for s in others):
            raise MemoryPlanError(
                f"{need}; make it smaller, let fewer engines be resident, or raise"
                " trainer.memory_budget_gb"
            )
        try:
            async with asyncio.timeout(slot.plan.load_timeout_s):
                await self._room[slot.plan.place].wait()
        except TimeoutError as error:
            raise StallError(
                f"{need}; none of it became free within {slot.plan.load_timeout_s:g} s"
            ) from error

    def _overfull(self, place: str, limit: int, *, coming: Slot | None = None) -> set[int]:
        """Devices of the place that hold too much, with `coming` awake; only its own devices matter
        to it."""
        held: dict[int, int] = {}
        for slot in self._slots.values():
            if slot.plan.place == place:
                for device in slot.plan.devices:
                    held[device] = held.get(device, 0) + (
                        slot.plan.awake_bytes if slot is coming else slot.held_bytes
                    )
        return {
            device
            for device, count in held.items()
            if count > limit and (coming is None or device in coming.plan.devices)
        }

    def _victim(self, overfull: set[int], residencies: Sequence[str], place: str) -> Slot | None:
        """Who is to go next: the awake engine used longest ago, then the sleeping one."""
        idle = [
            s
            for s in self._on(overfull, place)
            if not s.users and s.state != "unloaded" and s.held_bytes
        ]
        awake = [s for s in idle if s.state == "awake" and s.plan.residency in residencies]
        asleep = [s for s in idle if s.state == "asleep"]
        return min(awake or asleep, key=lambda s: s.last_used, default=None)

    def _on(self, devices: set[int], place: str) -> list[Slot]:
        return [
            s
            for s in self._slots.values()
            if s.plan.place == place and devices & set(s.plan.devices)
        ]

    @staticmethod
    async def _put_away(victim: Slot) -> None:
        """One stage down: awake engines as planned, sleeping ones by ending their process."""
        async with victim.lock:
            await (victim.put_away() if victim.state == "awake" else victim.unload())

    async def _memory_changed(self, place: str) -> None:
        async with self._room[place]:
            self._room[place].notify_all()

    def _stop_reading(self, key: Hashable) -> None:
        reading = self._reading.pop(key, None)
        if reading is not None:
            reading.stop()
            self._slots[key].add("read_ahead_bytes", float(reading.bytes_read))
            self._slots[key].add("read_ahead_s", reading.seconds)


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"

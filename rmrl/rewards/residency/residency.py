"""Keep engines within their memory: make room before an engine is loaded or woken, and leave room
when scoring is over.

The engine that scored last scores first in the next step, and the least recently used engine is put
away first. Over the steps the order zig-zags (A B C, C B A, ...), and only engines that do not fit
beside the others are ever swapped.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Hashable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rmrl.errors import (
    EngineLostError,
    InfrastructureError,
    MemoryPlanError,
    StallError,
    first_line,
)
from rmrl.rewards.residency.budget import Budget
from rmrl.rewards.residency.placing import turns
from rmrl.rewards.residency.plan import EnginePlan
from rmrl.rewards.residency.read_ahead import ReadAhead
from rmrl.rewards.residency.slot import HostOf, Slot
from rmrl.types import Metrics

_log = logging.getLogger(__name__)

_RANK = {"awake": 0, "asleep": 1, "unloaded": 2}


class Engine:
    """An awake engine as rewards call it. Calls survive one death of the process."""

    def __init__(self, residency: Residency, slot: Slot) -> None:
        self._residency = residency
        self._slot = slot

    async def call(self, method: str, requests: list[Any], *, timeout_s: float) -> list[Any]:
        """Return one result per request.

        Raises EngineLostError when the process dies twice, StallError past the deadline.
        """
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
    """Holds all engines in one run. `host_of` makes their processes.

    `budget` bounds what a place's engines may hold, by their plans' `awake_bytes` and `away_bytes`.
    None: unlimited.
    """

    def __init__(
        self,
        host_of: HostOf,
        plans: Sequence[EnginePlan],
        *,
        budget: Budget | None = None,
    ) -> None:
        self._slots = {plan.key: Slot(plan, host_of) for plan in plans}
        self._budget = budget or Budget()
        self._turns = turns(plans)
        self._room = {plan.place: asyncio.Condition() for plan in plans}
        self._uses = itertools.count(1)
        self._reading: dict[Hashable, ReadAhead] = {}

    @property
    def states(self) -> Mapping[str, str]:
        """Return each engine's label -> unloaded, awake or asleep."""
        return {slot.plan.label: slot.state for slot in self._slots.values()}

    @property
    def lost(self) -> Mapping[str, str]:
        """Return label -> reason for each engine whose process ended without being put away and
        that is not awake again."""
        return {slot.plan.label: slot.lost for slot in self._slots.values() if slot.lost}

    @property
    def plans(self) -> list[EnginePlan]:
        """Return every engine's plan."""
        return [slot.plan for slot in self._slots.values()]

    async def probe(self, *, timeout_s: float) -> None:
        """Find engines whose process has ended while nobody used them. `lost` names these
        engines."""
        await asyncio.gather(*(slot.probe(timeout_s) for slot in self._slots.values()))

    async def revive(self, key: Hashable) -> None:
        """Start a lost engine again. An engine that a call has started meanwhile stays as it is.
        Errors as `use`."""
        slot = self._slots[key]
        async with slot.lock:
            if not slot.lost:
                return
            await slot.unload()
        await self.load(key)

    async def load(self, key: Hashable) -> None:
        """Load or wake an engine before a call needs it. Errors as `use`."""
        async with self.use(key):
            pass

    async def put_away(self, key: Hashable) -> None:
        """Put an engine away as planned, where the engine is awake and nobody uses it."""
        slot = self._slots[key]
        async with self._room[slot.plan.place]:
            if slot.state == "awake" and not slot.users:
                await self._put_away(slot)

    def order(self, keys: Iterable[Hashable] | None = None) -> list[Hashable]:
        """Return the keys (None: all) in the order in which one round through them swaps least.

        Awake engines first, then sleeping ones, then unloaded ones; among equals the most recently
        used first.
        """

        def rank(key: Hashable) -> tuple[int, int]:
            slot = self._slots[key]
            return _RANK[slot.state], -slot.last_used

        return sorted(self._slots if keys is None else keys, key=rank)

    def turn_of(self, key: Hashable) -> Hashable:
        """Return the engine's turn. Engines with equal turns share a device and score one after
        another. Others may score at the same time."""
        return self._turns[key]

    def is_awake(self, key: Hashable) -> bool:
        """Return whether the engine can be called now."""
        return self._slots[key].state == "awake"

    def stays_awake(self, key: Hashable) -> bool:
        """Return whether the engine stays awake after a use while nobody needs its memory."""
        return self._slots[key].plan.residency != "on_demand"

    def needs_room(self, key: Hashable) -> bool:
        """Return whether another engine would have to be put away before this one can be woken."""
        slot = self._slots[key]
        limit = self._budget.scoring(slot.plan.place)
        if limit is None or slot.state == "awake":
            return False
        return bool(self._overfull(slot.plan.place, limit, coming=slot))

    @asynccontextmanager
    async def use(self, key: Hashable) -> AsyncGenerator[Engine]:
        """Yield the engine, awake for the block's time. Other engines are put away for it where
        memory is short.

        After the block an on_demand engine is put away. Any engine that was lost, hung or left busy
        is unloaded. Raises MemoryPlanError when the engine cannot fit beside engines that must
        stay, StallError when others hold its memory for too long.
        """
        slot = self._slots[key]
        slot.users += 1
        try:
            async with slot.lock:
                await self._wake(slot)
                try:
                    yield Engine(self, slot)
                except (InfrastructureError, StallError, asyncio.CancelledError) as error:
                    # Lost, hung, or still busy with abandoned calls: an orderly sleep would wait
                    # behind them.
                    if not isinstance(error, asyncio.CancelledError):
                        slot.lost = first_line(error)
                    await slot.unload()
                    raise
                finally:
                    slot.last_used = next(self._uses)
                    if slot.plan.residency == "on_demand":
                        await slot.put_away()
        finally:
            slot.users -= 1
            async with self._room[slot.plan.place]:
                self._room[slot.plan.place].notify_all()

    def read_ahead(self, key: Hashable) -> None:
        """Begin to read the engine's weights into the page cache, in the background. A no-op where
        they need not be read."""
        slot = self._slots[key]
        read_from_disk = slot.state == "unloaded" or (
            slot.state == "asleep" and slot.plan.put_away == "sleep2"
        )
        if read_from_disk and key not in self._reading:
            self._reading[key] = ReadAhead(slot.plan.spec.path)
            self._reading[key].start()

    async def settle(self) -> None:
        """Put idle engines away when scoring is over: least recently used first, until the others
        fit into the idle budget."""
        for place in self._room:
            limit = self._budget.idle(place)
            if limit is None:
                continue
            async with self._room[place]:
                while victim := self._victim(self._overfull(place, limit), ("auto",), place):
                    await self._put_away(victim)

    async def rest(self) -> None:
        """Put away every idle engine on the policy's devices that is not resident, however much
        memory is free. Pool engines stay."""
        place = ""
        if place not in self._room:
            return
        async with self._room[place]:
            for slot in self._slots.values():
                here = slot.plan.place == place and slot.plan.residency != "resident"
                if here and slot.state == "awake" and not slot.users:
                    await self._put_away(slot)

    def give_up(self, place: str, count: int) -> None:
        """Leave `count` bytes more on each device at a place to other holders, who hold more than
        was planned. While scoring, the largest engine still fits beside the other engines
        asleep."""
        plans = [slot.plan for slot in self._slots.values() if slot.plan.place == place]
        away = sum(plan.away_bytes for plan in plans)
        least = max((plan.awake_bytes - plan.away_bytes for plan in plans), default=0) + away
        self._budget = self._budget.less(place, count, least=least)

    async def load_resident(self) -> None:
        """Start the engines that stay in memory all the time, before the first step needs them."""
        for key, slot in self._slots.items():
            if slot.plan.residency == "resident":
                await self.load(key)

    async def close(self) -> None:
        """End every engine process."""
        for key in list(self._reading):
            self._stop_reading(key)
        for slot in self._slots.values():
            await slot.unload()

    def take_metrics(self) -> Metrics:
        """Return engine/<label>/... since the last call: counts and seconds of loads, wakes, sleeps
        and unloads, evictions (put away for another engine), bytes (held after the last load or
        wake), freed_bytes, read_ahead_bytes and read_ahead_s."""
        for key, reading in list(self._reading.items()):
            if reading.done:
                self._stop_reading(key)
        metrics: Metrics = {}
        for slot in self._slots.values():
            metrics |= slot.metrics
            slot.metrics = {}
        return metrics

    async def restart(self, slot: Slot) -> None:
        """Restart a dead engine. The caller limits restarts to one retry."""
        _log.warning(f"engine of {slot.plan.label} died; starting it again")
        slot.lost = "its process died"
        await slot.unload()
        await self._wake(slot)

    # --- memory

    async def _wake(self, slot: Slot) -> None:
        """Wake the engine. The caller holds the engine's lock."""
        self._stop_reading(slot.plan.key)
        if slot.state == "awake":
            return
        await self._make_room(slot)
        try:
            await slot.ensure_awake()
        finally:
            slot.reserved = False

    async def _make_room(self, slot: Slot) -> None:
        """Evict until the engine's awake bytes fit, then reserve them. Waits while engines in use
        are in the way."""
        place = slot.plan.place
        limit = self._budget.scoring(place)
        async with self._room[place]:
            while limit is not None:
                overfull = self._overfull(place, limit, coming=slot)
                if not overfull:
                    break
                victim = self._victim(overfull, ("auto", "on_demand"), place)
                if victim is None:
                    await self._wait_for_others(slot, overfull, limit)
                else:
                    victim.add("evictions", 1.0)
                    await self._put_away(victim)
            slot.reserved = True

    async def _wait_for_others(self, slot: Slot, overfull: set[int], limit: int) -> None:
        others: list[Slot] = [
            other
            for other in self._on(overfull, slot.plan.place)
            if other is not slot and other.held_bytes
        ]
        holders = ", ".join(f"{s.plan.label} {_gib(s.held_bytes)}" for s in others) or "nothing"
        need = (
            f"the engine of {slot.plan.label} needs {_gib(slot.plan.awake_bytes)} of {_gib(limit)},"
            f" held by others: {holders}"
        )
        if not any(other.users for other in others):
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
        """Return the place's devices that hold too much. With `coming` awake, only its own devices
        count."""
        total: Counter[int] = Counter()
        for slot in self._slots.values():
            if slot.plan.place == place:
                count = slot.plan.awake_bytes if slot is coming else slot.held_bytes
                for device in slot.plan.devices:
                    total[device] += count
        devices = {device for device, count in total.items() if count > limit}
        if coming is not None:
            devices &= set(coming.plan.devices)
        return devices

    def _victim(self, overfull: set[int], residencies: Sequence[str], place: str) -> Slot | None:
        """Return the engine to put away next: the awake one used longest ago, else the sleeping one
        used longest ago."""
        awake: list[Slot] = []
        asleep: list[Slot] = []
        for slot in self._on(overfull, place):
            if slot.users or not slot.held_bytes:
                continue
            if slot.state == "asleep":
                asleep.append(slot)
            elif slot.state == "awake" and slot.plan.residency in residencies:
                awake.append(slot)
        return min(awake or asleep, key=lambda slot: slot.last_used, default=None)

    def _on(self, devices: set[int], place: str) -> list[Slot]:
        """Return the engines on any of these devices at the place."""
        slots: list[Slot] = [
            slot
            for slot in self._slots.values()
            if slot.plan.place == place and devices & set(slot.plan.devices)
        ]
        return slots

    @staticmethod
    async def _put_away(victim: Slot) -> None:
        """Free an engine's memory one stage further: awake engines as planned, sleeping engines by
        ending their process."""
        async with victim.lock:
            if victim.state == "awake":
                await victim.put_away()
            else:
                await victim.unload()

    def _stop_reading(self, key: Hashable) -> None:
        reading = self._reading.pop(key, None)
        if reading is not None:
            reading.stop()
            self._slots[key].add("read_ahead_bytes", float(reading.bytes_read))
            self._slots[key].add("read_ahead_s", reading.seconds)


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"

"""Plain classes that tests/slow/cluster/test_processes.py runs in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

from rmrl.cluster import local_child
from rmrl.errors import ConfigError, RewardFunctionError


class Counter:
    """Knows nothing of Ray."""

    def __init__(self, start: int = 0) -> None:
        if start < 0:
            raise ConfigError(f"start={start}: must not be negative")
        self.value = start

    def add(self, amount: int, *, twice: bool = False) -> int:
        self.value += amount * (2 if twice else 1)
        return self.value

    def environment(self, name: str) -> str | None:
        return os.environ.get(name)

    def sleep(self, seconds: float, begun: str = "") -> None:
        """`begun`: a file that is made first."""
        if begun:
            Path(begun).touch()
        time.sleep(seconds)

    def wait_for_file(self, path: str) -> None:
        while not Path(path).exists():
            time.sleep(0.01)

    def ours(self) -> None:
        raise RewardFunctionError("the function 'f' returned nothing")

    def theirs(self) -> None:
        raise ValueError("not of ours")

    def times_out(self) -> None:
        raise TimeoutError("inside the method")

    def start_child(self) -> int:
        return subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True
        ).pid

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


async def at_the_gate(path: Path) -> None:
    """Return when the file is there."""
    while not path.exists():
        await asyncio.sleep(0.01)


class Stream:
    """Coroutines and an async generator."""

    def __init__(self) -> None:
        self.under_way = 0
        self.met = asyncio.Event()
        self.times_closed = 0

    async def numbers(self, count: int, folder: str) -> AsyncIterator[int]:
        """Gives a number when a file of that name is in the folder."""
        for number in range(count):
            await at_the_gate(Path(folder) / str(number))
            yield number

    async def breaks(self) -> AsyncIterator[int]:
        yield 1
        raise RewardFunctionError("after the first")

    async def dies(self) -> AsyncIterator[int]:
        yield 1
        os.kill(os.getpid(), signal.SIGKILL)

    async def endless(self) -> AsyncIterator[int]:
        try:
            yield 0
            await asyncio.Event().wait()
        finally:
            self.times_closed += 1

    def closed(self) -> int:
        """How often `endless` was closed."""
        return self.times_closed

    async def double(self, number: int, *, together: int) -> int:
        """Twice the number, once so many calls are under way."""
        self.under_way += 1
        if self.under_way == together:
            self.met.set()
        await self.met.wait()
        return 2 * number


class Stuck:
    """Stands still in several ways."""

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.gate.acquire()

    def wait_at_the_gate(self) -> None:
        self.gate.acquire()

    def wait_on_rank(self, rank: int) -> None:
        """Rank 0 stands at the gate, the others are done at once."""
        if rank == 0:
            self.wait_at_the_gate()

    def on(self, role: str, method: str, *args: object) -> object:
        """As a training worker hands calls on."""
        assert role == "actor"
        return getattr(self, method)(*args)


class StuckEngine:
    """Its event loop is free, its work is not."""

    async def generate(self) -> AsyncIterator[int]:
        yield await asyncio.to_thread(time.sleep, 600)

    async def wait_for_nothing(self) -> None:
        await asyncio.Event().wait()

    async def block_the_loop(self) -> None:
        time.sleep(600)


class StepsBeside:
    """Counts how far it is; its calls run side by side. Item 2 of the call `name` is done when a
    file `name`-2 is in the folder, from 1 on."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.count = 0

    async def work(self, name: str, items: int) -> int:
        for item in range(1, items + 1):
            await at_the_gate(self.folder / f"{name}-{item}")
            self.count += 1
        return items

    def progress(self) -> int:
        return self.count


class Steps:
    """Counts how far it is."""

    def __init__(self) -> None:
        self.count = 0

    def work(self, items: int, seconds: float) -> int:
        for _ in range(items):
            time.sleep(seconds)
            self.count += 1
        return items

    def progress(self) -> int:
        return self.count


class GatedSteps(Steps):
    """Does an item when a file with its number is in a folder, from 1 on, and reports at once."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = Path(folder)
        local_child.REPORT_S = 0.01

    def work_at_the_gate(self, items: int) -> int:
        for _ in range(items):
            while not (self.folder / str(self.count + 1)).exists():
                time.sleep(0.01)
            self.count += 1
        return items


class Receiver:
    """A rollout engine that notes the parts of an update; part `dies_at` ends its process."""

    def __init__(self, dies_at: int | None) -> None:
        self._dies_at = dies_at
        self._received: list[int | str] = []

    def start_weight_update(self) -> None:
        self._received.append("start")

    def update_weights(self, part: int) -> None:
        if part == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self._received.append(part)

    def finish_weight_update(self, version: int) -> None:
        self._received.append(f"version {version}")

    def received(self) -> list[int | str]:
        return self._received

    def hang(self) -> None:
        time.sleep(600)

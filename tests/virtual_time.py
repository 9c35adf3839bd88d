"""An event loop whose clock jumps: where nothing is ready, time goes on to the next timer at once.

    @pytest.mark.virtual_time
    async def test_the_second_try_comes_after_ten_seconds() -> None:
        loop = asyncio.get_running_loop()       # `loop.time` is the clock to pass in
        await asyncio.sleep(10)
        assert loop.time() == 10.0              # and no second has passed

The loop starts at 0. While calls of `asyncio.to_thread` and `run_in_executor` are under way, time
stands still. A socket or a process is refused: their time is not the loop's. Code that never sleeps,
such as an answer that comes with no await, takes no time: time goes on only where something waits.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from tests.patience import PATIENCE_S

LONGEST_S = 100_000.0
"""A test that goes on for more virtual seconds waits for ever, with a timer that never ends."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """See above. `started`: calls of executors that have not ended."""

    def __init__(self) -> None:
        self.now = 0.0
        self.started = 0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        self.started += 1
        future.add_done_callback(self._ended)
        return future

    async def shutdown_default_executor(self, *limits: Any) -> None:
        self.started += 1
        try:
            await super().shutdown_default_executor(*limits)
        finally:
            self.started -= 1

    def _ended(self, _: asyncio.Future[Any]) -> None:
        self.started -= 1


class _Jumping(selectors.DefaultSelector):
    """Waits for no timer: it moves the loop's clock instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if len(self.get_map()) > 1:  # the first is the loop's own
            raise RuntimeError("a test on virtual time waits for a socket or a process")
        if timeout is not None and (timeout <= 0 or not self._loop.started):
            ready = super().select(0)
            if not ready:
                self._loop.now += max(timeout, 0.0)
            if self._loop.now > LONGEST_S:
                raise RuntimeError(f"what the test waits for has not come in {LONGEST_S:g} s")
            return ready
        ready = super().select(PATIENCE_S)
        if not ready and not self._loop.started:
            raise RuntimeError("every task waits, and nothing is left that could wake one")
        return ready


class MovedClock:
    """The clock of a loop with real sockets and processes, plus the seconds that a test adds, from
    any thread: `clock.add(60)` lets a deadline of a minute pass."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return self._real() + self.ahead

    def drive(self, loop: asyncio.AbstractEventLoop) -> None:
        """Become the clock of this loop."""
        self.loop, self._real = loop, loop.time
        loop.time = self  # type: ignore[method-assign]

    def add(self, seconds: float) -> None:
        """Move the clock when the loop has handled what has arrived for it by now."""
        self.loop.call_soon_threadsafe(self._add, seconds)

    def add_and_wait(self, seconds: float) -> None:
        """Move the clock as `add`, and return when the timers have run that end by then."""
        passed = asyncio.run_coroutine_threadsafe(self._add_and_pass(seconds), self.loop)
        passed.result(PATIENCE_S)

    def _add(self, seconds: float) -> None:
        self.ahead += seconds

    async def _add_and_pass(self, seconds: float) -> None:
        self._add(seconds)
        for _ in range(2):  # a timer that has ended is ready in the next turn of the loop
            await asyncio.sleep(0)

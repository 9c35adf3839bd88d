"""Progress inside a step: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from tqdm import tqdm

from rmrl.clock import Clock

_log = logging.getLogger(__name__)

LINE_EVERY_S = 30.0
_LOOK_EVERY_S = 0.5


@contextmanager
def counting(
    what: str,
    total: int,
    *,
    unit: str = "resp",
    log_every_s: float | None = None,
    clock: Clock = time.monotonic,
) -> Iterator[Callable[[int], None]]:
    """Yields a function that takes the count so far. Where the output is no terminal the log gets a
    line every `log_every_s` seconds. None: no line."""
    if log_every_s is not None and not sys.stderr.isatty():
        yield _Lines(what, total, unit=unit, every_s=log_every_s, clock=clock)
        return
    with tqdm(
        total=total,
        desc=what,
        leave=False,
        disable=not sys.stderr.isatty(),
        unit=unit,
        position=1,
    ) as bar:

        def update(done: int) -> None:
            bar.update(done - bar.n)

        yield update


@asynccontextmanager
async def watching(
    count: Callable[[], int], update: Callable[[int], None], *, every_s: float = _LOOK_EVERY_S
) -> AsyncIterator[None]:
    """Call `update(count())` every so often while the block runs."""

    async def watch() -> None:
        while True:
            await asyncio.sleep(every_s)
            update(count())

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Lines:
    """A line of the log every `every_s` seconds, of which the first is not before that time."""

    def __init__(self, what: str, total: int, *, unit: str, every_s: float, clock: Clock) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._every_s = every_s
        self._clock = clock
        self._started = clock()
        self._last = self._started

    def __call__(self, done: int) -> None:
        now = self._clock()
        if now - self._last < self._every_s or done >= self._total:
            return
        self._last = now
        elapsed = now - self._started
        _log.info(f"{self._what}: {done} of {self._total} {self._unit} after {elapsed:.0f} s")

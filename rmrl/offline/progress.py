"""A scoring job's progress: a bar on a terminal or in a notebook, a line now and then in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

from rmrl.clock import Clock

_log = logging.getLogger(__name__)

_LINE_EVERY_S = 30.0
_KERNEL = "ipykernel"
"""Package of a notebook's process, which shows bars though it has no terminal."""


@contextmanager
def counting(
    total: int, *, done: int = 0, every_s: float = _LINE_EVERY_S, clock: Clock = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how many responses are scored so far. The first `done` were
    scored earlier and do not count for the speed, nor does the time before the first scores, in
    which models are loaded."""
    if sys.stderr.isatty() or _KERNEL in sys.modules:
        with tqdm(total=total, initial=done, desc="score", unit="resp", mininterval=0.5) as bar:

            def advance(count: int) -> None:
                if bar.n == done and count > done:
                    bar.unpause()
                bar.update(count - bar.n)

            yield advance
        return
    last_line = clock()
    first: tuple[int, float] | None = None

    def update(count: int) -> None:
        nonlocal last_line, first
        now = clock()
        if first is None:
            if count <= done:
                return
            first = (count, now)
        if now - last_line < every_s or count >= total:
            return
        last_line = now
        line = f"scored {count} of {total} responses"
        first_count, first_time = first
        if count > first_count:
            speed = (count - first_count) / (now - first_time)
            line += f", {speed:.3g} a second, about {_rough((total - count) / speed)} left"
        _log.info(line)

    yield update


def _rough(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"

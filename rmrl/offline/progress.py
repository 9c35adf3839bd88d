"""Progress of a scoring job: a bar on a terminal, a line now and then in a log."""

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


@contextmanager
def counting(
    total: int, *, done: int = 0, every_s: float = _LINE_EVERY_S, clock: Clock = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of responses scored so far. The first `done` were
    scored earlier and do not count for the speed."""
    if sys.stderr.isatty():
        with tqdm(total=total, initial=done, desc="score", unit="resp", mininterval=0.5) as bar:

            def advance(count: int) -> None:
                bar.update(count - bar.n)

            yield advance
        return
    started = clock()
    last_line = started

    def update(count: int) -> None:
        nonlocal last_line
        scored = count - done
        now = clock()
        remaining = total - count
        if now - last_line >= every_s and remaining > 0 and scored > 0:
            last_line = now
            speed = scored / (now - started)
            seconds = remaining / speed
            if seconds < 90:
                duration = f"{seconds:.0f} s"
            elif seconds < 90 * 60:
                duration = f"{seconds / 60:.0f} min"
            else:
                duration = f"{seconds / 3600:.1f} h"
            _log.info(
                f"scored {done + scored} of {total} responses, {speed:.3g} a second, about"
                f" {duration} left"
            )

    yield update

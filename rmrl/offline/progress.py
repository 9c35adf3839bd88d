"""How far a file is: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

_LINE_EVERY_S = 30.0


@contextmanager
def counting(total: int, *, notice: Callable[[str], None], every_s: float = _LINE_EVERY_S) -> Iterator[Callable[[int], None]]:
    """Yields a function that takes how many responses more are done."""
    if sys.stderr.isatty():
        with tqdm(total=total, desc="score", unit="resp", mininterval=0.5) as bar:

            def advance(more: int) -> None:
                bar.update(more)

            yield advance
        return
    started = spoken = time.monotonic()
    done = 0

    def update(more: int) -> None:
        nonlocal done, spoken
        done, now = done + more, time.monotonic()
        if now - spoken >= every_s and done < total:
            spoken = now
            notice(f"scored {done} of {total} responses, {done / (now - started):.3g} a second")

    yield update

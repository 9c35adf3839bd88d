"""Handling of Ctrl-C and SIGTERM."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def signal_handler(handle: Callable[[], None]) -> Iterator[None]:
    """Call `handle` on SIGINT and SIGTERM while the block runs; main thread only."""

    def call(signum: int, frame: Any) -> None:
        del signum, frame
        handle()

    previous = {number: signal.signal(number, call) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

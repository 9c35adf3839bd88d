"""Time as an argument: what waits, backs off, keeps a rate or gives up reads a clock that is passed
in, so that a test moves it by hand."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Returns seconds since some moment. Never runs backwards.

    `time.monotonic` is one. Code that only runs in an event loop reads `loop.time` instead, the
    clock that its timers and sleeps are on.
    """

    def __call__(self) -> float: ...

"""A rate limit that belongs to no event loop, so that it holds over all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class TokenBucket:
    """At most `per_minute` turns a minute, evenly spread: no more than one second's worth (at least
    one) at once.

    `clock` gives seconds and never runs backwards.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_minute / 60
        self._most = max(1.0, self._per_second)
        self._clock = clock
        self._lock = threading.Lock()
        self._left = self._most
        self._seen = clock()

    def reserve(self) -> float:
        """Take the next turn; seconds until it comes. Turns come in the order in which they were
        taken."""
        with self._lock:
            now = self._clock()
            self._left = min(self._most, self._left + (now - self._seen) * self._per_second)
            self._seen = now
            self._left -= 1
            return max(0.0, -self._left / self._per_second)

    def give_back(self) -> None:
        """Undo a `reserve` that was not used."""
        with self._lock:
            self._left = min(self._most, self._left + 1)

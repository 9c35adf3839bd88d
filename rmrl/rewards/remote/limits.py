"""A rate limit that belongs to no event loop, so that it holds over all of them."""

from __future__ import annotations

import threading
import time

from rmrl.clock import Clock


class TokenBucket:
    """At most `per_minute` turns a minute, evenly spread: no more than one second's worth (at least
    one) at once."""

    def __init__(self, per_minute: float, clock: Clock = time.monotonic) -> None:
        self._per_second = per_minute / 60
        self._capacity = max(1.0, self._per_second)
        self._clock = clock
        self._lock = threading.Lock()
        self._available = self._capacity
        self._updated = clock()

    def reserve(self) -> float:
        """Take the next turn; seconds until it comes. Turns come in the order in which they were
        taken."""
        with self._lock:
            now = self._clock()
            self._available = min(
                self._capacity, self._available + (now - self._updated) * self._per_second
            )
            self._updated = now
            self._available -= 1
            return max(0.0, -self._available / self._per_second)

    def give_back(self) -> None:
        """Undo a `reserve` that was not used."""
        with self._lock:
            self._available = min(self._capacity, self._available + 1)

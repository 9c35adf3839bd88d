"""The rows that a server has accepted and not yet answered, with a bound."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from rmrl.clock import Clock
from rmrl.serve.problems import RequestError

_WINDOW_S = 120.0
_UNKNOWN_S = 10.0
_KEPT = 1000
_LEAST_S = 1.0
_MOST_S = 120.0


class RowQueue:
    """Counts accepted responses."""

    def __init__(self, max_rows: int, *, clock: Clock = time.monotonic) -> None:
        self.max_rows = max_rows
        self.rows = 0
        self._clock = clock
        self._done: deque[tuple[float, int, float]] = deque(maxlen=_KEPT)
        """Time of an end, its responses, and the busy seconds since the end before it."""
        self._busy_since = 0.0

    @contextmanager
    def place(self, rows: int) -> Iterator[None]:
        """Hold places for the block. Raises RequestError 429 where there are too few."""
        if self.rows + rows > self.max_rows:
            seconds = self.seconds_until(rows)
            raise RequestError(
                429,
                f"{self.rows} responses wait or are being scored, of at most {self.max_rows}, and"
                f" this request has {rows}; send it again in {seconds:.0f} s",
                retry_after_s=seconds,
            )
        if not self.rows:
            self._busy_since = self._clock()
        self.rows += rows
        try:
            yield
        finally:
            self.rows -= rows
            now = self._clock()
            self._done.append((now, rows, now - self._busy_since))
            self._busy_since = now

    def seconds_until(self, rows: int) -> float:
        """Estimate when so many places will be free, from the rate while there was work in the
        last minutes."""
        now = self._clock()
        while self._done and self._done[0][0] < now - _WINDOW_S:
            self._done.popleft()
        if not self._done:
            return _UNKNOWN_S
        count = sum(each for _, each, _ in self._done)
        busy_s = sum(seconds for _, _, seconds in self._done)
        over = self.rows + rows - self.max_rows
        return min(max(over * busy_s / count, _LEAST_S), _MOST_S)

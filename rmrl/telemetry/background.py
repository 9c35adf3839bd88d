"""A sink behind a thread of its own: a tracker that waits for its server never delays a run.

Opening, logging and closing all happen in that one thread, in order. An error of the tracker is
re-raised by the next `log` or by `close` here, where `Sinks` reports it and switches the tracker
off.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmrl.telemetry.sample_table import SampleTable
from rmrl.telemetry.sinks import Sink, TableSink

WAITING_STEPS = 1000
"""Entries (metrics or samples of a step) that may wait for a tracker. With one more it is given
up."""
CLOSE_S = 60.0
"""Seconds given to a tracker at the run's end for the steps that still wait."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Entry:
    """What waits for the tracker: a step's metrics, or its samples."""

    step: int
    content: Mapping[str, float] | SampleTable


class BackgroundSink:
    """`make` constructs the real sink. It runs in the thread, as a tracker may request a run from
    its server there."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Sink],
        *,
        waiting_steps: int = WAITING_STEPS,
        close_s: float = CLOSE_S,
    ) -> None:
        self._make = make
        self._limit = waiting_steps
        self._close_s = close_s
        self._lines: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._given_up = False
        # A daemon: a tracker that hangs for good must not keep the process alive.
        self._thread = threading.Thread(target=self._work, name=f"logger-{name}", daemon=True)
        self._thread.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Queue the metrics and return at once. Raises an earlier error of the tracker, or
        TimeoutError when too many steps wait for it."""
        self._put(_Entry(step, dict(metrics)))

    def table(self, step: int, table: SampleTable) -> None:
        """Queue the samples, which a sink that shows no tables ignores. Raises as `log`."""
        self._put(_Entry(step, table))

    def _put(self, entry: _Entry) -> None:
        self._raise_error()
        if self._lines.qsize() >= self._limit:
            self._given_up = True
            raise TimeoutError(f"it does not answer, {self._lines.qsize()} steps wait for it")
        self._lines.put(entry)

    def close(self) -> None:
        """Wait at most `close_s` until the tracker has taken the waiting steps; not at all after it
        was given up. Safe to call twice."""
        if self._given_up:
            return
        self._lines.put(None)
        self._thread.join(self._close_s)
        self._raise_error()
        if self._thread.is_alive():
            self._given_up = True
            raise TimeoutError(
                f"it did not finish within {self._close_s:g} s, {max(self._lines.qsize() - 1, 0)}"
                " steps still wait for it"
            )

    def _raise_error(self) -> None:
        if self._error is not None and not self._given_up:
            self._given_up = True
            raise self._error

    def _work(self) -> None:
        try:
            sink = self._make()
            try:
                while (entry := self._lines.get()) is not None:
                    if not isinstance(entry.content, SampleTable):
                        sink.log(entry.step, entry.content)
                    elif isinstance(sink, TableSink):
                        sink.table(entry.step, entry.content)
            except BaseException:
                # the error of `log` is the one to report
                with contextlib.suppress(Exception):
                    sink.close()
                raise
            sink.close()
        # third-party code: some leave with SystemExit where they cannot prompt the user
        except BaseException as error:
            if isinstance(error, Exception):
                self._error = error
            else:
                self._error = RuntimeError(f"it left with {error!r}")
            _log.debug("%s: %r", self._thread.name, error)

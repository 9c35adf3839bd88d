"""Watch over the cluster's head and this machine's node process, from the driver.

Without the head (`gcs_server`) live processes still reach each other, but Ray ends the driver with
code 1 after `RAY_gcs_rpc_server_reconnect_timeout_s` (60 s unless set). Without the node process
(`raylet`) it does so at the next access to the object store. The watch notices the loss within
seconds, so that what can be saved is saved in the time that is left. Counted from the loss, as
shares of the 60 s:

    TOLERATED          the loss is noticed (a cluster started here: TOLERATED_S seconds)
    UPDATES_END        updates end by then
    CHECKPOINTS_END    checkpoints end by then
    DRIVER_ENDS        the driver ends in any case

A process has one cluster, as in Ray itself: `watching` makes a watch the present one, and the
functions below read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from rmrl.clock import Clock
from rmrl.errors import ClusterLostError, InfrastructureError, StallError
from rmrl.logs import FILE_ONLY

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

EVERY_S = 0.5
FAILURES = 3
"""Failed probes in succession before a process counts as gone."""
TOLERATED_S = 1.0
"""Seconds between the first and the last of them, for a cluster that was started here: its head
never comes back."""
TOLERATED = 0.25
"""The same for a cluster that was joined, whose head may be restarted: a share of Ray's own
timeout."""
UPDATES_END = 0.4
CHECKPOINTS_END = 0.7
DRIVER_ENDS = 0.85
_CONNECT_TIMEOUT_S = 2.0
_CANCEL_TIMEOUT_S = 5.0
_NOTICING_S = (FAILURES + 1) * (EVERY_S + _CONNECT_TIMEOUT_S)
_RAY_PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A Ray process that listens on a TCP port as long as it lives.

    A connection is made by the kernel, also while the process is too busy to accept it, and refused
    at once when the process is gone.
    """

    name: str
    """Name in the sentence of its loss."""
    host: str
    port: int

    def answers(self) -> bool:
        """True if a connection was accepted."""
        try:
            with socket.create_connection((self.host, self.port), timeout=_CONNECT_TIMEOUT_S):
                return True
        except OSError:
            return False


@dataclass(slots=True, kw_only=True)
class ClusterWatch:
    """Counts each listener's failed probes. Times are `clock`'s, in seconds."""

    listeners: Sequence[Listener]
    tolerated_s: float = TOLERATED_S
    patience_s: float = 60.0
    """Ray's own timeout in seconds, from the first failed probe on."""
    end_processes: Callable[[], None] = lambda: None
    """Function that ends the processes of a cluster that was started here."""
    clock: Clock = time.monotonic
    loss: ClusterLostError | None = None
    kept: str = ""
    """End of the error's sentence: which work is on disk when the driver has to end at once."""
    _failures: dict[str, int] = field(default_factory=dict[str, int])
    _first_failure: dict[str, float] = field(default_factory=dict[str, float])
    _lost_at: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _waiters: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def observe(self) -> bool:
        """Probe every listener once, True if one counts as gone."""
        for listener in self.listeners:
            if listener.answers():
                self._failures[listener.name] = 0
                continue
            now = self.clock()
            failures = self._failures[listener.name] = self._failures.get(listener.name, 0) + 1
            if failures == 1:
                self._first_failure[listener.name] = now
            since = self._first_failure[listener.name]
            if failures >= FAILURES and now - since >= self.tolerated_s:
                self.lose(listener, since)
                return True
        return False

    def seconds_left(self, share: float) -> float:
        """Seconds until `share` of Ray's timeout is over, or 0."""
        return max(0.0, self._lost_at + share * self.patience_s - self.clock())

    def call_when_lost(self, callback: Callable[[], object]) -> None:
        """Call `callback` from the watch's thread, or at once when the cluster is already lost."""
        with self._lock:
            if self.loss is None:
                self._waiters.append(callback)
                return
        callback()

    def forget(self, callback: Callable[[], object]) -> None:
        """Undo `call_when_lost`."""
        with self._lock, contextlib.suppress(ValueError):
            self._waiters.remove(callback)

    def all_answer(self) -> bool:
        """Probe each listener once, without counting failures."""
        return all(listener.answers() for listener in self.listeners)

    def error(self) -> ClusterLostError:
        """Return the loss with what is on disk. A new error for each place that raises it, so that
        tracebacks do not pile up."""
        if self.kept:
            return ClusterLostError(f"{self.loss}; {self.kept}")
        return ClusterLostError(str(self.loss))

    def start(self) -> None:
        """Probe from its own thread, until `stop` or the loss. Then end the driver in time unless
        it ends by itself."""
        threading.Thread(target=self._run, name="rmrl-cluster-watch", daemon=True).start()

    def stop(self) -> None:
        """End the thread, but not after a loss: the driver may still be blocked in a call that
        never returns."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        """True while Ray is being shut down: a process that ends is then no loss."""
        return self._stop.is_set()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            if self.loss is not None or self.observe():
                time.sleep(self.seconds_left(DRIVER_ENDS))
                # The driver has not ended by itself: end it before Ray does so with code 1 and a
                # stack.
                text = f"{ClusterLostError.__name__}: {self.error()}"
                print(f"\n{text}", file=sys.stderr, flush=True)
                _log.error(text, extra=FILE_ONLY)
                with contextlib.suppress(Exception):
                    self.end_processes()
                os._exit(ClusterLostError.exit_code)

    def lose(self, listener: Listener, since: float) -> None:
        """Record that `listener`'s process is gone since then. Only the first loss counts."""
        with self._lock:
            if self.loss is not None:
                return
            self._lost_at = since
            self.loss = ClusterLostError(
                f"{listener.name} at {listener.host}:{listener.port} is gone, which ends Ray for"
                " this run"
            )
            waiters = self._waiters
            self._waiters = []
        for callback in waiters:
            callback()


_present: ClusterWatch | None = None


@contextmanager
def watching(watch: ClusterWatch) -> Iterator[ClusterWatch]:
    """Make `watch` the present one for the block's time."""
    global _present
    before = _present
    _present = watch
    watch.start()
    try:
        yield watch
    finally:
        _present = before
        watch.stop()


def ray_patience_s() -> float:
    """Seconds without a head after which Ray ends a process."""
    with contextlib.suppress(ValueError):
        return float(os.environ.get(_RAY_PATIENCE, "60"))
    return 60.0


def loss() -> ClusterLostError | None:
    """The present cluster's loss; None while it is alive, and where there is no cluster."""
    if _present is None:
        return None
    return _present.loss


def seconds_left(share: float) -> float:
    """Seconds until `share` of Ray's timeout is over, after a loss."""
    if _present is None:
        return 0.0
    return _present.seconds_left(share)


def keep_in_mind(sentence: str) -> None:
    """Set what is on disk, for a driver's error that has to end at once."""
    if _present is not None:
        _present.kept = sentence


async def unless_lost(work: Awaitable[Result], *, until: float = 0.0) -> Result:
    """Return `work`'s result. Raises ClusterLostError, with `work` cancelled, when the cluster is
    lost first.

    `until`: share of Ray's timeout for which `work` may go on after the loss. Without a present
    cluster: just the result.
    """
    watch = _present
    if watch is None:
        return await work
    lost = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    waiter = asyncio.ensure_future(lost.wait())

    def set_lost() -> None:
        loop.call_soon_threadsafe(lost.set)

    watch.call_when_lost(set_lost)
    try:
        await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait({task}, timeout=watch.seconds_left(until))
        return await _outcome(task, watch, lost)
    finally:
        waiter.cancel()
        watch.forget(set_lost)
        if not task.done():
            task.cancel()
            timeout_s = None if watch.loss is None else _CANCEL_TIMEOUT_S
            await asyncio.wait({task}, timeout=timeout_s)


async def _outcome(
    task: asyncio.Future[Result], watch: ClusterWatch, lost: asyncio.Event
) -> Result:
    """Return the task's result, or raise the loss as an error.

    A call that failed may be a loss's first sign: the watch then has a few seconds to notice.
    """
    if not task.done():
        raise watch.error()
    error = None if task.cancelled() else task.exception()
    if isinstance(error, ClusterLostError):
        raise error
    if not isinstance(error, InfrastructureError | StallError):
        return task.result()
    if watch.loss is None and not await asyncio.to_thread(watch.all_answer):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(lost.wait(), watch.tolerated_s + _NOTICING_S)
    if watch.loss is None:
        raise error
    raise watch.error() from error

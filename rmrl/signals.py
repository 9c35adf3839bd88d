"""SIGINT, SIGTERM and SIGHUP, which end a command: what it has begun is cleaned up.

Signals arrive in the main thread alone, so nothing is installed in another one. Signals that the
process ignores (SIGHUP under nohup, SIGINT of a script's background process) stay ignored.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def signal_handlers() -> dict[signal.Signals, Any]:
    """Return the handlers that are installed, for `install`."""
    return {number: signal.getsignal(number) for number in _SIGNALS}


def install(handlers: Mapping[signal.Signals, Any]) -> None:
    """Install handlers again after a library has installed its own."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def handled_by(
    handle: Callable[[signal.Signals], None],
    numbers: Sequence[signal.Signals],
    *,
    ignored_too: bool = False,
) -> Iterator[None]:
    """Call `handle` on these signals while the block runs. `ignored_too`: also on signals that the
    process ignores."""

    def call(number: int, frame: Any) -> None:
        del frame
        handle(signal.Signals(number))

    before: dict[signal.Signals, Any] = {
        number: handler
        for number, handler in signal_handlers().items()
        if number in numbers and (ignored_too or handler is not signal.SIG_IGN)
    }
    install(dict.fromkeys(before, call))
    try:
        yield
    finally:
        install(before)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block on SIGTERM and SIGHUP, so that it is cleaned up as after
    Ctrl-C.

    An Exception would be lost where the signal comes inside the `except Exception` of a library.
    """

    def interrupt(number: signal.Signals) -> None:
        raise KeyboardInterrupt(f"interrupted by {number.name}")

    with handled_by(interrupt, (signal.SIGTERM, signal.SIGHUP)):
        yield


class Steps(Protocol):
    """Work that ends behind a step."""

    interrupted: bool
    """Whether it saves after this step and stops."""


@contextmanager
def stopping_after_step(job: Steps) -> Iterator[None]:
    """Interrupt the job on the first Ctrl-C (or SIGTERM). A second Ctrl-C stops it at once."""
    log = logging.getLogger(type(job).__module__)

    def stop(number: signal.Signals) -> None:
        del number
        if job.interrupted:
            raise KeyboardInterrupt
        job.interrupted = True
        log.info("stopping after a checkpoint of this step; press Ctrl-C again to stop now")

    with handled_by(stop, (signal.SIGINT, signal.SIGTERM), ignored_too=True):
        yield


class StopSignals:
    """Signal handlers that cancel `task` on the first signal and end the process on the second."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._before: dict[signal.Signals, Any] = {}
        self.received: signal.Signals | None = None
        """The first signal."""

    def arm(self) -> None:
        """Install the handlers. Call it again after a library has installed its own (Ray handles
        SIGTERM when it starts)."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, handler in signal_handlers().items():
            if handler is not signal.SIG_IGN:
                self._before.setdefault(number, handler)
                asyncio.get_running_loop().add_signal_handler(number, self._stop, number)

    def disarm(self) -> None:
        """Restore the earlier handlers."""
        for number in self._before:
            asyncio.get_running_loop().remove_signal_handler(number)
        install(self._before)

    def _stop(self, number: signal.Signals) -> None:
        if self.received is None:
            self.received = number
            self._task.cancel()
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Handle signals for the block, which runs in a task of an event loop."""
    task = asyncio.current_task()
    assert task is not None
    signals = StopSignals(task)
    signals.arm()
    try:
        yield signals
    finally:
        signals.disarm()

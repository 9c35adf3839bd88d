"""SIGINT, SIGTERM and SIGHUP while a job runs in an event loop: the current batch is abandoned,
scored rows are kept."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def signal_handlers() -> dict[signal.Signals, Any]:
    """Return the handlers that are installed, for `install`."""
    return {number: signal.getsignal(number) for number in _SIGNALS}


def install(handlers: Mapping[signal.Signals, Any]) -> None:
    """Install handlers again after a library has installed its own. Outside the main thread no
    signals arrive, and nothing is installed."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number, handler in handlers.items():
        signal.signal(number, handler)


class StopSignals:
    """Signal handlers that cancel `task` on the first signal and end the process on the second.

    Signals that the process ignores (SIGHUP under nohup, SIGINT of a script's background process)
    stay ignored.
    """

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._before: dict[signal.Signals, Any] = {}
        self.received: signal.Signals | None = None
        """The first signal."""

    def arm(self) -> None:
        """Install the handlers. Call it again after a library has installed its own (Ray handles
        SIGTERM when it starts).

        Outside the main thread no signals arrive, and no handler is installed.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN:
                self._before.setdefault(number, handler)
                asyncio.get_running_loop().add_signal_handler(number, self._stop, number)

    def disarm(self) -> None:
        """Restore the earlier handlers."""
        for number, handler in self._before.items():
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, handler)

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

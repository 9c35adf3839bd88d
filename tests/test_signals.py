"""Signals are handled for a block, and before and after it as they were."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from rmrl.signals import handled_by

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("ignored_too", [False, True])
def test_an_ignored_signal_stays_ignored_unless_the_block_asks_for_it(ignored_too: bool) -> None:
    received: list[signal.Signals] = []
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with handled_by(received.append, BOTH, ignored_too=ignored_too):
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == ([signal.SIGTERM, signal.SIGINT] if ignored_too else [signal.SIGINT])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_thread_installs_nothing() -> None:
    found: list[object] = []

    def inside() -> None:
        with handled_by(print, BOTH):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]

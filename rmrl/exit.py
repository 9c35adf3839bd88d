"""How a command ends: our errors as one message and their exit code, never a traceback for a user's
mistake."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rmrl.errors import Interrupted, RmrlError


@dataclass(slots=True)
class ExitCode:
    value: int = 0


def say(text: str) -> None:
    """One notice on standard error, at once, above any progress bar."""
    from tqdm import tqdm

    with tqdm.external_write_mode(file=sys.stderr):
        print(f"[rmrl] {text}", file=sys.stderr, flush=True)


@contextmanager
def exit_code() -> Iterator[ExitCode]:
    """Turn RmrlErrors and Ctrl-C into an exit code; RMRL_TRACEBACK=1 lets them through."""
    code = ExitCode()
    try:
        yield code
    except Interrupted as error:
        say(str(error))
        code.value = error.exit_code
    except RmrlError as error:
        if os.environ.get("RMRL_TRACEBACK"):
            raise
        print(f"\n{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        code.value = error.exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):
        say("interrupted")
        code.value = 130


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does, with everything that is undone on the way;
    ignored ones stay ignored."""

    def interrupt(number: int, frame: Any) -> None:
        del frame
        raise Interrupted(f"interrupted by {signal.Signals(number).name}")

    numbers = (
        (signal.SIGTERM, signal.SIGHUP)
        if threading.current_thread() is threading.main_thread()
        else ()
    )
    before = {number: signal.getsignal(number) for number in numbers}
    taken = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)

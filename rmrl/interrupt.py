"""Ctrl-C while a command imports its modules: nothing is to be cleaned up then, and an exception
would be a traceback from inside an import."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells: 128 + SIGINT."""
_ENTRIES = ("rmrl.cli", "rmrl.main_")


def end_at_interrupt() -> None:
    """Have Ctrl-C end this process at once, until `raise_at_interrupt`. Does nothing where it is
    not an rmrl command (`rmrl ...`, `python -m rmrl.main_...`), or where Ctrl-C does not raise
    KeyboardInterrupt anyway."""
    if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_at_interrupt() -> None:
    """Have Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: Any) -> None:
    del number, frame
    os.write(2, b"[rmrl] interrupted\n")
    os._exit(INTERRUPTED)


def _is_command() -> bool:
    """Return whether this process runs an entry: Python has "-m" as the program's name while it
    looks for the module."""
    program = sys.argv[0] if sys.argv else ""
    if program == "-m":
        return any(word.startswith(_ENTRIES) for word in sys.orig_argv)
    return program.rpartition(os.sep)[2] == "rmrl"

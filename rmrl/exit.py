"""How a command ends: our errors as one message and their exit code, never a traceback for a user's mistake."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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

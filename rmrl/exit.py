"""How a command ends: our errors as one message and their exit code, never a traceback for a user's
mistake."""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, TextIO

from rmrl.errors import ConfigError, Interrupted, RmrlError
from rmrl.interrupt import INTERRUPTED, raise_at_interrupt
from rmrl.logs import FILE_ONLY, command_log

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ExitCode:
    value: int = 0


@contextmanager
def exit_code() -> Iterator[ExitCode]:
    """Turn RmrlErrors and Ctrl-C into an exit code; RMRL_TRACEBACK=1 lets them through. The
    command's log is open inside the block."""
    code = ExitCode()
    with command_log():
        try:
            raise_at_interrupt()
            yield code
        except Interrupted as error:
            _log.info(str(error))
            code.value = error.exit_code
        except (RmrlError, ModuleNotFoundError, OSError) as error:
            for_user = _for_user(error)
            if for_user is None or os.environ.get("RMRL_TRACEBACK"):
                raise
            text = f"{type(for_user).__name__}: {for_user}"
            print(f"\n{text}", file=sys.stderr, flush=True)
            _log.error(text, extra=FILE_ONLY)
            code.value = for_user.exit_code
        except KeyboardInterrupt as error:
            _log.info(str(error) or "interrupted")
            code.value = INTERRUPTED
        except asyncio.CancelledError:
            _log.info("interrupted")
            code.value = INTERRUPTED


def _for_user(error: Exception) -> RmrlError | None:
    """Return an error whose message is for users, None for one that is a defect."""
    if isinstance(error, RmrlError):
        return error
    problem: str | None = None
    if isinstance(error, ModuleNotFoundError):
        from rmrl.config.installed import left_out_problem  # it reads the metadata of packages

        problem = left_out_problem(error)
    elif isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        problem = (
            f"saw {str(error.filename)!r:.80}... as a path; names between slashes have at most 255"
            " bytes: give another one"
        )
    return ConfigError(problem) if problem else None


P = ParamSpec("P")

READER_GONE = 141
"""Exit code after the output's reader has closed the pipe: 128 + SIGPIPE, as in shells."""


def ends_with_its_reader(main: Callable[P, int]) -> Callable[P, int]:
    """Decorate an entry's `main` so that it ends quietly when its output's reader closes the pipe,
    as in `rmrl show FILE | head`: with READER_GONE if that stopped it, else with its own code."""

    @functools.wraps(main)
    def entry(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return main(*args, **kwargs)
        except BrokenPipeError:
            if not (_is_unread(sys.stdout) or _is_unread(sys.stderr)):
                raise  # another pipe broke
            return READER_GONE
        finally:
            _flush(sys.stdout)
            _flush(sys.stderr)

    return entry


def _flush(stream: TextIO) -> None:
    """Write buffered output, to the null device if the reader has closed the pipe, so that the
    interpreter does not report the broken pipe at its end."""
    try:
        stream.flush()
    except BrokenPipeError:
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, stream.fileno())
        os.close(null_device)


def _is_unread(stream: TextIO) -> bool:
    """Return whether the stream is a pipe that its reader has closed."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (OSError, ValueError):  # a stream without a file behind it
        return False

"""A command's log: the `rmrl` loggers' messages on the console and in a file.

Every module reports through `logging.getLogger(__name__)`. An entry opens the log once, around all
that it does. Where the command writes results, `write_to` adds the file. Without `command_log`, in
a program that imports rmrl, nothing is set up here: that program's own `logging` settings hold.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
"""Values of trainer.log_level."""

FILE_ONLY = {"file_only": True}
"""`extra` of a message that reaches the console in another way."""

_LOGGER = logging.getLogger("rmrl")
_WAITING = 1000
"""Records kept until the file is known."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_STYLES = {"DEBUG": "dim", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


@contextmanager
def command_log() -> Iterator[None]:
    """Write rmrl's messages to standard error inside the block, and to `write_to`'s file.

    The root logger and other packages' loggers stay as they are; `rmrl` is as before when the block
    ends. An error that leaves the block reaches the file with its stack.
    """
    console = ConsoleHandler()
    file = RunFileHandler()
    level = _LOGGER.level
    propagates = _LOGGER.propagate
    _LOGGER.propagate = False  # Hydra gives the root logger handlers of its own
    _LOGGER.addHandler(file)
    _LOGGER.addHandler(console)
    begin_run("info")
    try:
        yield
    except Exception:
        _LOGGER.critical("the command ends with an error", exc_info=True, extra=FILE_ONLY)
        raise
    finally:
        _LOGGER.removeHandler(console)
        _LOGGER.removeHandler(file)
        _LOGGER.setLevel(level)
        _LOGGER.propagate = propagates
        file.close()


def begin_run(level: str) -> None:
    """Set the console's lowest level, and close the file that an earlier run with this command left
    open.

    `level`: one of `LEVELS`. The configuration check reports any other, which counts as info. The
    file holds info and above, with "debug" that too. Does nothing outside `command_log`.
    """
    number = LEVELS.get(level, logging.INFO)
    for handler in _LOGGER.handlers:
        if isinstance(handler, ConsoleHandler):
            handler.setLevel(number)
            _LOGGER.setLevel(min(number, logging.INFO))
        elif isinstance(handler, RunFileHandler):
            handler.close()


def write_to(path: Path) -> None:
    """Append to `path` until the command ends, the messages so far first. Does nothing outside
    `command_log`."""
    for handler in _LOGGER.handlers:
        if isinstance(handler, RunFileHandler):
            handler.open(path)


def run_file() -> Path | None:
    """Return the file that `write_to` opened. None where there is none."""
    files = [h.path for h in _LOGGER.handlers if isinstance(h, RunFileHandler)]
    return files[0] if files else None


class ConsoleHandler(logging.Handler):
    """Writes `[rmrl] message` to standard error, above any progress bar. On a terminal warnings are
    coloured, where NO_COLOR is not set."""

    def __init__(self) -> None:
        super().__init__()
        self._terminal: Any = None
        self.addFilter(lambda record: not getattr(record, "file_only", False))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record. Raises BrokenPipeError where nobody reads standard error any more."""
        try:
            from tqdm import tqdm  # with the first message: a program that imports rmrl has none

            text = self.format(record)
            with tqdm.external_write_mode(file=sys.stderr):
                if sys.stderr.isatty():
                    self._write_to_terminal(text, _STYLES.get(record.levelname, ""))
                else:
                    print(text, file=sys.stderr, flush=True)
        except BrokenPipeError:  # the reader has gone
            raise
        except Exception:
            self.handleError(record)

    def format(self, record: logging.LogRecord) -> str:
        """Return the text; every level but info precedes its message."""
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        return f"[rmrl] {level}{super().format(record)}"

    def _write_to_terminal(self, text: str, style: str) -> None:
        from rich.console import Console
        from rich.text import Text

        if self._terminal is None:
            self._terminal = Console(stderr=True)
        self._terminal.print(Text(text, style=style), soft_wrap=True)


class RunFileHandler(logging.Handler):
    """Appends to a file that is known later: until `open` the last records wait in memory.

    Each record reaches the operating system before the next one is made, so that a process that is
    killed has written them all. A file that cannot be written is reported once, and the command
    goes on without it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.path: Path | None = None
        """The open file, as it was named."""
        self._file: TextIO | None = None
        self._waiting: deque[logging.LogRecord] = deque(maxlen=_WAITING)
        self._given_up = False
        self.setFormatter(
            logging.Formatter(
                "%(asctime)s %(levelname)-8s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S%z"
            )
        )

    def open(self, path: Path) -> None:
        """Append to `path` from here on. No file is open before."""
        self.close()
        self._given_up = False
        try:
            self._file = path.open("a", encoding="utf-8", errors="backslashreplace")
            self.path = path
        except OSError as error:
            self._give_up(path, error)
            return
        waiting = list(self._waiting)
        self._waiting.clear()
        for record in waiting:
            self.handle(record)

    def close(self) -> None:
        """Close the file, if one is open. Later records wait for the next one."""
        self.acquire()
        try:
            if self._file is not None:
                # what could not be written has been reported
                with suppress(OSError):
                    self._file.close()
            self._file = None
            self.path = None
        finally:
            self.release()
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Write or keep one record."""
        if self._given_up:
            return
        if self._file is None:
            self._waiting.append(record)
            return
        try:
            self._file.write(_COLOURS.sub("", self.format(record)) + "\n")
            self._file.flush()
        except BrokenPipeError:  # the reader has gone
            raise
        except OSError as error:
            self._give_up(Path(self._file.name), error)
        except Exception:
            self.handleError(record)

    def _give_up(self, path: Path, error: OSError) -> None:
        self._given_up = True
        self._waiting.clear()
        _LOGGER.warning(f"the log cannot be written to {path} ({error}); it goes on without a file")


@contextmanager
def logged_errors_raised(logger: str) -> Iterator[None]:
    """Raise RuntimeError after the block, with the first error that a library has logged in it: for
    libraries that log their errors and go on."""
    errors = _Errors()
    log = logging.getLogger(logger)
    log.addHandler(errors)
    try:
        yield
    finally:
        log.removeHandler(errors)
    if errors.messages:
        raise RuntimeError(errors.messages[0])


class _Errors(logging.Handler):
    """Keeps errors' messages."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

"""A fork becomes a program: what Python does between its start and the program's first line, and
what it does behind the last one."""

from __future__ import annotations

import atexit
import fcntl
import io
import os
import random
import runpy
import select
import signal
import socket
import sys
import threading
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.forks.hook.rmrl_fork_client import SERVER, split

HIGH = 512
"""Open files of the fork itself have numbers from here on, beyond those of programs."""
F_SETSIG = 10
"""fcntl(2); Python has no name for it."""
THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client says of its program."""

    client: socket.socket
    handles: list[int]
    """Its open files as they are numbered here; `files` has their numbers there."""
    arguments: list[str]
    variables: dict[str, str]
    folder: str
    path: list[str]
    files: list[int]
    ignored: list[int]


def run(request: Request) -> NoReturn:
    """Run the program and end the process as Python would."""
    os.setsid()
    take_files(request)
    take_signals(request.ignored)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.variables)
    os.environ.pop(SERVER, None)
    sys.path[:] = request.path
    sys.orig_argv = request.arguments
    seed()
    options, words = split(request.arguments[1:])
    sys.dont_write_bytecode = "-B" in options
    open_streams(unbuffered="-u" in options)
    try:
        run_main(words, safe_path="-P" in options)
        status = 0
    except SystemExit as error:
        status = _status(error.code)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        status = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    leave(status)


def take_files(request: Request) -> None:
    """Give the program's open files their numbers, and end with the client.

    The system sends SIGKILL when the client's end of the connection closes: the client never writes
    into it again.
    """
    connection = fcntl.fcntl(request.client.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH)
    request.client.close()
    handles: list[int] = []
    for handle in request.handles:
        handles.append(fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, HIGH))
        os.close(handle)
    for handle, file in zip(handles, request.files, strict=True):
        os.dup2(handle, file, inheritable=True)
        os.close(handle)
    fcntl.fcntl(connection, F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(connection, fcntl.F_GETFL)
    fcntl.fcntl(connection, fcntl.F_SETFL, flags | os.O_ASYNC)
    if select.select([connection], [], [], 0)[0]:
        os._exit(1)  # it had closed before


def take_signals(ignored: Sequence[int]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


def seed() -> None:
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        threads = os.environ.get(THREADS) or len(os.sched_getaffinity(0))
        if torch.get_num_threads() != int(threads):
            torch.set_num_threads(int(threads))


def open_streams(*, unbuffered: bool) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    sys.stdin = sys.__stdin__ = open(0, closefd=False)
    sys.stdout = sys.__stdout__ = _stream(1, unbuffered=unbuffered, errors="strict")
    sys.stderr = sys.__stderr__ = _stream(2, unbuffered=unbuffered, errors="backslashreplace")


def _stream(file: int, *, unbuffered: bool, errors: str) -> io.TextIOWrapper:
    raw = open(file, "wb", 0, closefd=False)
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),  # type: ignore[arg-type]
        encoding="utf-8",
        errors=errors,
        line_buffering=file == 2 or raw.isatty(),
        write_through=unbuffered,
    )


def run_main(words: list[str], *, safe_path: bool) -> None:
    first, *rest = words
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-m":
        sys.argv = words[:1] + rest[1:]
        folder = os.getcwd()
    elif first == "-c":
        sys.argv = words[:1] + rest[1:]
        folder = ""
    else:
        sys.argv = words
        folder = os.path.dirname(os.path.realpath(first))
    if not safe_path:
        sys.path.insert(0, folder)
    if first == "-m":
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
    elif first == "-c":
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        main.__file__ = first
        exec(compile(Path(first).read_bytes(), first, "exec"), main.__dict__)


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def leave(status: int) -> NoReturn:
    """Wait for threads, run what is registered for the end, and leave. A negative status is a
    signal. Modules are not taken down, as those of the server were never meant to be."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 120
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)

"""What a test session takes over from the shell that started it, set back to what a plain shell gives:
a background job's processes ignore Ctrl-C and Ctrl-\\, and those under nohup ignore a hangup."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

SESSION_VARIABLE = "RMRL_TEST_SESSION"
"""Environment variable of every process that a test starts: the id of the process that runs the
tests."""


def begin_session() -> None:
    """Let what is started from here on heed every signal, and mark it. Call it in the main thread.

    An ignored signal stays ignored in every program that is started. (Python ignores a broken pipe
    of itself, and `subprocess` does not hand that on.)
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        # The session itself outlives its terminal as before: no program inherits a function.
        signal.signal(signal.SIGHUP, lambda *_: None)
    os.environ[SESSION_VARIABLE] = str(os.getpid())


def files_of_others(folder: Path) -> set[str]:
    """Names of files in `folder` that processes have open or mapped, and none of this session."""
    mark = f"{SESSION_VARIABLE}={os.getpid()}".encode()
    own: set[str] = set()
    others: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        # Another user's process, or one that has just ended, cannot be read.
        with suppress(OSError):
            names = _files_in_use(process, folder)
            variables = (process / "environ").read_bytes().split(b"\0")
            if mark in variables or process.name == str(os.getpid()):
                own |= names
            else:
                others |= names
    return others - own


def _files_in_use(process: Path, folder: Path) -> set[str]:
    paths: list[str] = []
    for line in (process / "maps").read_text(errors="replace").splitlines():
        paths.append(line.split(maxsplit=5)[-1])
    for link in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            paths.append(str(link.readlink()))
    names: set[str] = set()
    for path in paths:
        if path.startswith(f"{folder}/"):
            names.add(Path(path).name)
    return names

"""A server process that ends with the process that started it, even if that one is killed.

Run as a program, this file is the guard between the two: it starts the command and waits until
either the command ends or its own standard input does, which happens when the starting process
closes it or dies. It imports nothing from the package.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence

GRACE_S = 10.0
"""Seconds between terminating a server and killing it."""


class ChildServer:
    """One command, with all it starts, in its own process group."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], *, grace_s: float = GRACE_S
    ) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self._grace_s = grace_s
        guarded = [sys.executable, "-I", __file__, str(grace_s), *command]
        self._guard = subprocess.Popen(
            guarded,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=dict(env),
        )

    @property
    def pid(self) -> int:
        """The guard's process id, whose descendants are the server."""
        return self._guard.pid

    def resident_bytes(self) -> int:
        """Return all its processes' resident memory; 0 once it has ended."""
        import psutil  # not at the top: the guard does not use it

        try:
            guard = psutil.Process(self.pid)
            processes = [guard, *guard.children(recursive=True)]
            return sum(process.memory_info().rss for process in processes)
        except psutil.Error:
            return 0

    def alive(self) -> bool:
        """Whether the command still runs."""
        return self._guard.poll() is None

    def last_words(self, characters: int = 1500) -> str:
        """Return its last output."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - characters))
        return self._log.read().decode("utf-8", "replace").strip()

    def stop(self) -> None:
        """End it and all processes it started, by force after `grace_s`."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        try:
            self._guard.wait(2 * self._grace_s + 5.0)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        self._log.close()


def guard(command: Sequence[str], grace_s: float) -> int:
    """Run `command` until it or standard input ends. Return its exit code."""
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def end_with_input() -> None:
        while os.read(0, 4096):
            pass
        _signal_group(server.pid, signal.SIGTERM)
        try:
            server.wait(grace_s)
        except subprocess.TimeoutExpired:
            _signal_group(server.pid, signal.SIGKILL)

    threading.Thread(target=end_with_input, daemon=True).start()
    code = server.wait()
    _signal_group(server.pid, signal.SIGKILL)  # processes it left behind
    return code


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(abs(guard(sys.argv[2:], float(sys.argv[1]))))

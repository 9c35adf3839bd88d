"""Processes on this machine without Ray: spawn, call with a deadline, kill.

They serve scoring on one machine with engines for which their own process is enough; training,
engines over several devices and several nodes need `rmrl.cluster.worker_group`.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import IO, Any

import psutil

from rmrl.cluster.local_child import BOOT, MAKE
from rmrl.cluster.process_tree import Family, end_family
from rmrl.cluster.progress_deadline import with_progress
from rmrl.errors import EngineLostError, StallError

SPAWN_TIMEOUT_S = 300.0
_CHILD = "rmrl.cluster.local_child"
_TAIL_BYTES = 2000
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class LocalProcess:
    """A living process. Implements rmrl.interfaces.ProcessHandle.

    Calls run one after another, in the order in which they were made.
    """

    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        self.name = name
        parent_end, child_end = socket.socketpair()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._popen = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-c",
                    BOOT,
                    json.dumps(sys.path),
                    str(child_end.fileno()),
                    _CHILD,
                ],
                pass_fds=[child_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, **environment},
                process_group=0,  # Ctrl-C ends the parent, which ends its processes in order
            )
        except BaseException:
            parent_end.close()
            self._log.close()
            raise
        finally:
            child_end.close()
        self._family: Family | None = None
        with suppress(psutil.Error):
            self._family = Family(psutil.Process(self._popen.pid))
        self._channel: Connection[Any, Any] = Connection(parent_end.detach())
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=f"rmrl-{name}")
        self._number = 0
        self._progress = 0
        """Progress of all calls so far. It never falls."""

    async def call(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        """The method's result.

        The deadline counts from the call's last progress, where the object counts it (method
        `progress`), see `with_progress`. Raises EngineLostError when the process dies, StallError
        past the deadline, the method's RmrlErrors unchanged and any other error as
        InfrastructureError.
        """
        loop = asyncio.get_running_loop()
        try:
            waiting = loop.run_in_executor(self._threads, self._exchange, method, args, kwargs)
            # The progress of the calls before it counts for a call that waits for them.
            begun = self._progress

            async def progress() -> int:
                return self._progress - begun

            succeeded, result = await with_progress(waiting, timeout_s=timeout_s, progress=progress)
        except TimeoutError as error:
            raise StallError(
                f"{self.name}.{method} did not finish within {timeout_s:g} s"
            ) from error
        except (EOFError, OSError, RuntimeError) as error:
            raise EngineLostError(
                f"the process of {self.name}.{method} died{self._last_words()}"
            ) from error
        if succeeded:
            return result
        raise result

    def remember_family(self) -> None:
        if self._family is not None:
            self._family.remember()

    async def alive(self, *, timeout_s: float) -> None:
        """Raise EngineLostError where the process has ended."""
        del timeout_s
        if self._popen.poll() is not None:
            raise EngineLostError(f"the process of {self.name} died{self._last_words()}")

    async def kill(self) -> None:
        """End the process and its children now, and wait until they are gone."""
        if self._family is not None:
            await end_family(self._family.members())
        await asyncio.to_thread(self._release)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def _exchange(
        self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[bool, Any]:
        """One call and its answer; answers to calls that nobody waits for are passed over."""
        self._number += 1
        begun = self._progress
        self._channel.send((self._number, method, args, dict(kwargs)))
        while True:
            number, succeeded, result = self._channel.recv()
            if number == self._number and succeeded is None:
                self._progress = begun + result
            elif number == self._number:
                return succeeded, result

    def _release(self) -> None:
        """Reap the process, which has ended, and close what belongs to it."""
        self._popen.wait()
        # A thread that waits for an answer reads the end of the stream now.
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._channel.close()
        self._log.close()

    def _last_words(self) -> str:
        """The end of what the process printed, for the error when it dies."""
        with suppress(OSError, ValueError):
            size = self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, size - _TAIL_BYTES))
            text = self._log.read().decode("utf-8", errors="replace").strip()
            if text:
                return f"; it printed last:\n{text}"
        return ""


@dataclass(frozen=True, slots=True)
class LocalHost:
    """Makes processes on this machine. Implements rmrl.interfaces.ProcessHost."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables set before the process imports anything."""
    devices: tuple[int, ...] = ()
    """GPUs that its processes see, as positions among those that this process sees. (): no change
    of what they see."""

    async def spawn(self, factory: str, settings: Mapping[str, Any], *, name: str) -> LocalProcess:
        """A process that has built `factory(**settings)`."""
        variables = dict(self.environment)
        if self.devices:
            variables[_VISIBLE] = visible_devices(self.devices)
        process = await asyncio.to_thread(LocalProcess, name, variables)
        try:
            await process.call(MAKE, factory, dict(settings), timeout_s=SPAWN_TIMEOUT_S)
        except BaseException:
            await process.kill()
            raise
        return process


def visible_devices(positions: tuple[int, ...]) -> str:
    """CUDA_VISIBLE_DEVICES with the devices at `positions` among all that this process sees."""
    visible = os.environ.get(_VISIBLE, "")
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return ",".join(names[position] if names else str(position) for position in positions)

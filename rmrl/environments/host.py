"""The process that plays an environment: started with its own packages, asked by JSON lines, ended
with all it started."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from rmrl.cluster.process_tree import Family, end_family
from rmrl.errors import ConfigError, EngineLostError, InfrastructureError

PROGRAM = Path(__file__).parent / "inside" / "verifiers_host.py"
_MOST_BYTES = 2**28
_END_S = 5.0
"""Seconds that an environment has to put its tools away."""
_TAIL = 1500
_LOOK_S = 5.0
"""How often the process's children are looked for, which takes milliseconds."""


class PlayError(Exception):
    """A sample that the environment could not play."""


class Host:
    """A living host process."""

    def __init__(
        self,
        command: Sequence[str],
        opening: Mapping[str, Any],
        *,
        log: Path,
        environment: Mapping[str, str],
    ) -> None:
        self._command = tuple(command)
        self._opening = dict(opening)
        self._log = log
        self._environment = dict(environment)
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._on_trace: dict[int, Callable[[str], None]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._family: Family | None = None
        self._remembered = -math.inf
        self._reading: asyncio.Task[None] | None = None
        self.version = ""

    @property
    def under_way(self) -> int:
        """How many calls wait for their reply."""
        return len(self._waiting)

    @property
    def ended(self) -> bool:
        """Whether the process has ended, so that no call gets a reply."""
        return self._reading is not None and self._reading.done()

    async def start(self, *, timeout_s: float) -> None:
        """Start the process and open the environment. Raises ConfigError where it cannot be opened,
        with the reason."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    limit=_MOST_BYTES,
                    env={**_without_python(os.environ), **self._environment},
                    start_new_session=True,
                )
            except OSError as error:
                raise ConfigError(
                    f"actor_rollout_ref.rollout.verifiers.python={self._command[0]} cannot be"
                    f" started ({error}); give the python of the environment that has verifiers"
                ) from error
        self._family = Family(psutil.Process(self._process.pid))
        first: dict[str, Any] = {}
        try:
            async with asyncio.timeout(timeout_s):
                await self._write(self._opening)
                first = await self._line()
        except (TimeoutError, EngineLostError):
            await self.close()
        if "ready" in first:
            self.version = first["ready"]
            self._reading = asyncio.create_task(self._read())
            return
        await self.close()
        raise ConfigError(_cannot_open(first.get("failed", ""), self._tail(), self._log))

    async def call(
        self, op: str, *, on_trace: Callable[[str], None] = lambda _: None, **fields: Any
    ) -> dict[str, Any]:
        """Send a request and return its reply; `on_trace` gets each trace's id as it begins. Raises
        PlayError where the environment failed, EngineLostError where the process has ended. A
        cancelled call is cancelled there, too."""
        if self.ended:
            raise self._lost()
        number = next(self._numbers)
        self._on_trace[number] = on_trace
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        try:
            await self._write({"op": op, "id": number, **fields})
            answer = await reply
        except asyncio.CancelledError:
            with contextlib.suppress(EngineLostError):
                await self._write({"op": "cancel", "id": number})
            raise
        finally:
            self._waiting.pop(number, None)
            self._on_trace.pop(number, None)
        if "error" in answer:
            raise PlayError(answer["error"])
        return answer

    async def close(self) -> None:
        """End the process and everything that it has started."""
        if self._process is None or self._family is None:
            return
        self._family.remember()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await end_family(self._family.members(), ends_by_itself_s=_END_S)
        await self._process.wait()
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _write(self, request: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            await self._process.stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            raise self._lost() from error

    async def _line(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise self._lost()
        return json.loads(line)

    async def _read(self) -> None:
        failure: Exception
        try:
            while True:
                answer = await self._line()
                if "trace" in answer:
                    if answer["id"] in self._on_trace:
                        self._on_trace[answer["id"]](answer["trace"])
                    continue
                now = time.monotonic()
                if self._family is not None and now - self._remembered >= _LOOK_S:
                    self._family.remember()
                    self._remembered = now
                waiting = self._waiting.get(answer["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except EngineLostError as error:
            failure = error
        except ValueError as error:
            failure = InfrastructureError(f"the environment's process wrote no JSON: {error}")
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(failure)

    def _lost(self) -> EngineLostError:
        return EngineLostError(
            f"the environment's process has ended; its last lines are in {self._log}:"
            f" {self._tail()}"
        )

    def _tail(self) -> str:
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _TAIL))
            return log.read().decode(errors="replace").strip()
        return ""


def _without_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those that would lead to this Python's packages."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in environment.items() if name not in dropped}


def _cannot_open(failed: str, tail: str, log: Path) -> str:
    if "No module named 'verifiers'" in failed + tail:
        return (
            "actor_rollout_ref.rollout.source=verifiers needs verifiers 0.4, whose packages do not"
            " fit rmrl's own: python -m venv agents && agents/bin/pip install 'verifiers==0.4.*',"
            " then actor_rollout_ref.rollout.verifiers.python=agents/bin/python"
        )
    reason = failed or (tail.splitlines() or ["it gave no answer"])[-1]
    todo = ""
    if "authenticated with prime" in reason:
        todo = (
            "; verifiers runs an agent in Prime's sandbox where you name none: give"
            " actor_rollout_ref.rollout.verifiers.args={agent: {runtime: {type: subprocess}}}, or"
            " docker (instead of agent, the name of the environment's role)"
        )
    return f"the environment cannot be opened ({reason}){todo}; its output is in {log}"

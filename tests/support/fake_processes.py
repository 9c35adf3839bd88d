"""In-process stand-ins for processes: plain objects behind the same interface."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmrl.errors import EngineLostError
from rmrl.registry import load_attribute

_MEASURES = ("resident_bytes", "phase_memory", "ping")
"""Measurements of the process: neither recorded nor counted, so that they change no test."""


@dataclass(slots=True)
class FakeProcess:
    """Implements rmrl.interfaces.ProcessHandle. `dies_on` counts down calls until it dies;
    afterwards every call raises EngineLostError."""

    object: Any
    name: str
    dies_on: int | None = None
    calls: list[str] = field(default_factory=list)
    """Names of the methods called; for a training worker's models "actor.update"."""

    async def call(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        """The object's method's result. Nothing runs in parallel, so `timeout_s` is ignored."""
        return await self.result(method, *args, timeout_s=timeout_s, **kwargs)

    async def result(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        """Equal to `call`. See RayProcess.result."""
        del timeout_s
        name = method
        if method == "on":
            name = ".".join(map(str, args[:2]))
        self._live(name)
        result = getattr(self.object, method)(*args, **kwargs)
        if hasattr(result, "__await__"):
            return await result
        return result

    async def alive(self, *, timeout_s: float) -> None:
        """Raise EngineLostError where it died; not recorded as a call."""
        del timeout_s
        self._live("ping")

    def stored(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    async def stream(self, method: str, *args: Any, timeout_s: float) -> AsyncIterator[Any]:
        del timeout_s
        self._live(method)
        async for part in getattr(self.object, method)(*args):
            yield part

    def remember_family(self) -> None:
        """It has none."""

    async def kill(self) -> None:
        self.object = None

    def _live(self, method: str) -> None:
        if method not in _MEASURES:
            self.calls.append(method)
        if self.object is None or (self.dies_on is not None and len(self.calls) >= self.dies_on):
            self.object = None
            raise EngineLostError(f"the process of {self.name}.{method} died")


@dataclass(slots=True)
class FakeHost:
    """Implements rmrl.interfaces.ProcessHost. `spawned` lists every process made; `deaths[i]` is
    `dies_on` for the i-th."""

    deaths: Mapping[int, int] = field(default_factory=dict)
    spawned: list[FakeProcess] = field(default_factory=list)

    async def spawn(self, factory: str, settings: Mapping[str, Any], *, name: str) -> FakeProcess:
        make: Any = load_attribute(factory)
        process = FakeProcess(make(**settings), name, dies_on=self.deaths.get(len(self.spawned)))
        self.spawned.append(process)
        return process

    @property
    def living(self) -> list[str]:
        """The names whose processes have not ended, in the order they were made."""
        return [process.name for process in self.spawned if process.object is not None]

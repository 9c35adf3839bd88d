"""Two actors that run any plain class in a process of its own; the class does not know of Ray.

The object is made by a call, not by the actor's constructor: an error raised in a constructor reaches the caller as text only.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

from rmrl.registry import load_attribute


def _build(factory: str, settings: Mapping[str, Any]) -> Any:
    make: Any = load_attribute(factory)
    return make(**settings)


class SyncProcess:
    """Runs one object's methods one after another, on the process's main thread."""

    def make(self, factory: str, settings: Mapping[str, Any]) -> int:
        """Build the object; returns the process id."""
        self._object = _build(factory, settings)
        return os.getpid()

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._object, method)(*args, **kwargs)

    def pid(self) -> int:
        return os.getpid()


class AsyncProcess:
    """Runs one object's coroutines and async generators side by side, on one event loop."""

    async def make(self, factory: str, settings: Mapping[str, Any]) -> int:
        """Build the object; returns the process id."""
        self._object = _build(factory, settings)
        return os.getpid()

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        returned = getattr(self._object, method)(*args, **kwargs)
        return await returned if hasattr(returned, "__await__") else returned

    async def stream(self, method: str, *args: Any) -> AsyncIterator[Any]:
        async for part in getattr(self._object, method)(*args):
            yield part

    async def pid(self) -> int:
        return os.getpid()

"""Two actors that run any plain class in its own process. The class needs no Ray.

The object is built by a call, not by the actor's constructor: an error raised in a constructor
reaches the caller as text only. Calls in the group CONTROL run on their own thread, also while the
object's methods are blocked.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil
import ray

from rmrl.cluster.stacks import ProcessStacks, present_stacks
from rmrl.registry import load_attribute
from rmrl.startup import quick_imports

CONTROL = "control"
_GATHER_S = 0.01
_END = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A started process's identity and place."""

    pid: int
    node_id: str
    address: str
    """Address of its node."""


def _build(factory: str, settings: Mapping[str, Any]) -> Any:
    with quick_imports():
        make: Any = load_attribute(factory)
    return make(**settings)


def progress_of(made: Any) -> int:
    """Return the number that an object's method `progress` gives, 0 where it has none."""
    count: Callable[[], int] | None = getattr(made, "progress", None)
    return 0 if count is None else count()


def _process_identity() -> ProcessIdentity:
    return ProcessIdentity(
        pid=os.getpid(),
        node_id=ray.get_runtime_context().get_node_id(),
        address=ray.util.get_node_ip_address(),
    )


async def _gathered(arrivals: asyncio.Queue[Any]) -> list[Any] | None:
    """Return all items that arrive within a moment after the first; None at the end."""
    ready = [await arrivals.get()]
    if ready[0] is not _END:
        await asyncio.sleep(_GATHER_S)
    while not arrivals.empty() and ready[-1] is not _END:
        ready.append(arrivals.get_nowait())
    if ready[-1] is not _END:
        return ready
    if len(ready) == 1:
        return None
    arrivals.put_nowait(ready.pop())  # for the next call
    return ready


def _end_children() -> None:
    children = psutil.Process().children(recursive=True)
    for child in children:
        with suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(children, timeout=1.0)


class SyncProcess:
    """Runs one object's methods one after another, always on the same thread."""

    def __init__(self) -> None:
        self._object: Any = None
        self._before = 0

    def make(self, factory: str, settings: Mapping[str, Any]) -> ProcessIdentity:
        """Build the object."""
        self._object = _build(factory, settings)
        return _process_identity()

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        self._before = progress_of(self._object)
        return getattr(self._object, method)(*args, **kwargs)

    @ray.method(concurrency_group=CONTROL)
    def progress(self) -> int:
        """Return how far the present call is, 0 where the object does not count."""
        return progress_of(self._object) - self._before

    def pid(self) -> int:
        return os.getpid()

    @ray.method(concurrency_group=CONTROL)
    def stacks(self) -> ProcessStacks:
        """Return every thread's stack."""
        return present_stacks()

    @ray.method(concurrency_group=CONTROL)
    def end_children(self) -> None:
        """Kill the processes that the object has started."""
        _end_children()


class AsyncProcess:
    """Runs one object's coroutines and async generators side by side, on one event loop."""

    def __init__(self) -> None:
        self._object: Any = None
        self._calls: dict[int, tuple[str, Any]] = {}
        self._before = 0

    async def make(self, factory: str, settings: Mapping[str, Any]) -> ProcessIdentity:
        """Build the object."""
        self._object = _build(factory, settings)
        return _process_identity()

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        returned = getattr(self._object, method)(*args, **kwargs)
        if not hasattr(returned, "__await__"):
            return returned
        with self._listed(method, returned):
            return await returned

    async def stream(self, method: str, *args: Any) -> AsyncIterator[list[Any]]:
        """Yield an async generator's items, in lists that arrive within `_GATHER_S`: each message
        between processes costs milliseconds."""
        parts = getattr(self._object, method)(*args)
        arrivals: asyncio.Queue[Any] = asyncio.Queue()

        async def feed() -> None:
            try:
                async for part in parts:
                    arrivals.put_nowait(part)
            finally:
                arrivals.put_nowait(_END)

        with self._listed(method, parts):
            feeding = asyncio.create_task(feed())
            try:
                while (ready := await _gathered(arrivals)) is not None:
                    yield ready
                # Raises the generator's error.
                await feeding
            finally:
                feeding.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await feeding

    async def pid(self) -> int:
        return os.getpid()

    @ray.method(concurrency_group=CONTROL)
    async def progress(self) -> int:
        """Return how far the object has come since it had no call under way, 0 where it does not
        count. Calls run side by side, so that this is their common progress."""
        return progress_of(self._object) - self._before

    @ray.method(concurrency_group=CONTROL)
    async def stacks(self) -> ProcessStacks:
        """Return the stacks for every thread and every call under way."""
        return present_stacks(list(self._calls.values()))

    @ray.method(concurrency_group=CONTROL)
    async def end_children(self) -> None:
        """Kill the processes that the object has started."""
        _end_children()

    @contextmanager
    def _listed(self, method: str, call: Any) -> Iterator[None]:
        """List the call while it waits, for `stacks`: its frames are on no thread then."""
        if not self._calls:
            self._before = progress_of(self._object)
        self._calls[id(call)] = (method, call)
        try:
            yield
        finally:
            del self._calls[id(call)]

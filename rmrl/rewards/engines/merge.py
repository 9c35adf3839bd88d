"""Several rewards that name one engine hand it their requests in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

Run = Callable[[str, list[Any]], Awaitable[list[Any]]]
"""(method, requests) -> one result per request."""


class MergedCalls:
    """A barrier around one engine: when every participant has either called or left, all requests go out as one call per method.

    Each participant must call `leave` exactly once, after its last `submit`, whatever happened to it.
    """

    def __init__(self, run: Run, *, participants: int) -> None:
        self._run = run
        self._active = participants
        self._pending: list[tuple[str, list[Any], asyncio.Future[list[Any]]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, method: str, requests: Sequence[Any]) -> list[Any]:
        """Results of `requests`, in order; waits for the other participants' requests first."""
        if not requests:
            return []
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._pending.append((method, list(requests), future))
        self._flush_if_complete()
        return await future

    def leave(self) -> None:
        """This participant has nothing more to ask."""
        self._active -= 1
        self._flush_if_complete()

    def _flush_if_complete(self) -> None:
        if not self._pending or len(self._pending) < self._active:
            return
        batch, self._pending = self._pending, []
        for method in dict.fromkeys(entry[0] for entry in batch):
            task = asyncio.ensure_future(self._send(method, [entry for entry in batch if entry[0] == method]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, method: str, entries: list[tuple[str, list[Any], asyncio.Future[list[Any]]]]) -> None:
        try:
            results = await self._run(method, [request for _, requests, _ in entries for request in requests])
        except BaseException as error:
            for _, _, future in entries:
                if not future.done():
                    future.set_exception(error)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        start = 0
        for _, requests, future in entries:
            if not future.done():
                future.set_result(results[start : start + len(requests)])
            start += len(requests)

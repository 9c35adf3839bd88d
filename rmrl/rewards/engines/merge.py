"""Several rewards that name one engine hand it their requests in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rmrl.errors import InfrastructureError

Run = Callable[[str, list[Any]], Awaitable[list[Any]]]
"""(method, requests) -> one result per request."""
_Entry = tuple[str, list[Any], asyncio.Future[list[Any]]]


class MergedCalls:
    """A barrier around one engine: when every participant has either called or left, all requests go out as one call per method.

    Each participant must call `leave` exactly once, after its last `submit`, whatever happened to it.
    """

    def __init__(self, run: Run, *, participants: int) -> None:
        self._run = run
        self._active = participants
        self._pending: list[_Entry] = []
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

    def cancel(self) -> None:
        """Stop waiting for the engine; whoever still waits is cancelled."""
        for task in self._tasks:
            task.cancel()

    def _flush_if_complete(self) -> None:
        # A participant that was cancelled while it waited must neither count as one that has asked nor be asked for.
        self._pending = [entry for entry in self._pending if not entry[2].done()]
        if not self._pending or len(self._pending) < self._active:
            return
        batch, self._pending = self._pending, []
        for method in dict.fromkeys(entry[0] for entry in batch):
            task = asyncio.ensure_future(self._send(method, [entry for entry in batch if entry[0] == method]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, method: str, entries: Sequence[_Entry]) -> None:
        requests = [request for _, own, _ in entries for request in own]
        try:
            results = await self._run(method, requests)
            if len(results) != len(requests):
                raise InfrastructureError(f"the engine returned {len(results)} results of {method} for {len(requests)} requests")
        except asyncio.CancelledError:
            for _, _, future in entries:
                future.cancel()
            raise
        except Exception as error:
            for _, _, future in entries:
                if not future.done():
                    future.set_exception(error)
            return
        start = 0
        for _, own, future in entries:
            if not future.done():
                future.set_result(results[start : start + len(own)])
            start += len(own)

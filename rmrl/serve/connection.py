"""A route that runs as long as its client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

MOST_HEAD_BYTES = 16 * 2**10
"""Size of a request's line and headers, in bytes."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def run_while_connected(
    app: App, scope: Scope, *, body: bytes, receive: Receive, send: Send
) -> None:
    """Run an application on a body that was read. A client that goes away cancels the run."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    work = asyncio.current_task()
    assert work is not None
    is_cut_off = False

    async def until_disconnected() -> Message:
        nonlocal is_cut_off
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                is_cut_off = True
                work.cancel()
                return message

    async def replayed() -> Message:
        if messages:
            return messages.pop()
        return await asyncio.shield(gone)

    gone = asyncio.create_task(until_disconnected())
    try:
        await app(scope, replayed, send)
    except asyncio.CancelledError:
        # Others that cancel the request, such as a server that stops, still see it end that way.
        if not is_cut_off or work.cancelling() > 1:
            raise
    finally:
        gone.cancel()
        if is_cut_off:
            work.uncancel()

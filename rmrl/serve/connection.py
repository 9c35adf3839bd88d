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

    async def until_disconnected() -> Message:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return message

    async def replayed() -> Message:
        if messages:
            return messages.pop()
        return await asyncio.shield(gone)

    gone = asyncio.create_task(until_disconnected())
    work = asyncio.ensure_future(app(scope, replayed, send))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await work
    finally:
        work.cancel()
        gone.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)

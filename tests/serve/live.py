"""A server on a socket of its own, in a thread, for clients that are not asynchronous or that open
connections themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rmrl.serve.app import make_app
from rmrl.serve.protocol import web_server
from tests.serve.conftest import Served
from tests.virtual_time import MovedClock

_START_S = 60.0


@contextmanager
def live(
    served: Served,
    *overrides: str,
    idle_s: int = 600,
    clock: MovedClock | None = None,
    **settings: Any,
) -> Iterator[str]:
    """Serve on a free port; yields the address. `idle_s`: see `web_server`; on `clock` where there
    is one."""
    served.bench.tokenizer()  # a fixture, which only this thread can make
    ready = threading.Event()
    place: list[str] = []
    problems: list[BaseException] = []
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        if clock is not None:
            clock.drive(asyncio.get_running_loop())
        stop = asyncio.Event()
        async with served.service(*overrides, **settings) as service:
            server = web_server(make_app(service), idle_s=idle_s)
            serving = asyncio.create_task(server.serve())
            while not server.started and not serving.done():
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            place.append(f"http://127.0.0.1:{port}")
            stops.append((asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()
            server.should_exit = True
            await serving

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            problems.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="live server", daemon=True)
    thread.start()
    try:
        assert ready.wait(_START_S)
        if problems:
            raise problems[0]
        yield place[0]
    finally:
        for loop, stop in stops:
            loop.call_soon_threadsafe(stop.set)
        thread.join(_START_S)
    assert not thread.is_alive()
    assert not problems

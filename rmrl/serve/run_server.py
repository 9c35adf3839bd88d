"""The server's life: listen, load, answer, and finish the accepted requests when a signal comes."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from rmrl.api import Scorer, open_scorer
from rmrl.cluster.watch import keep_in_mind, unless_lost
from rmrl.errors import ConfigError, InfrastructureError, Interrupted
from rmrl.garbage import rare_collections
from rmrl.serve.app import make_app
from rmrl.serve.checked import CheckedServer
from rmrl.serve.protocol import web_server
from rmrl.serve.service import Service
from rmrl.signals import StopSignals

_log = logging.getLogger(__name__)

OpenScorer = Callable[[], AbstractAsyncContextManager[Scorer]]

_BACKLOG = 2048
_LOOK_S = 0.05


def run_server(checked: CheckedServer) -> None:
    """Serve until a signal comes. Raises Interrupted then, ConfigError where the address cannot be
    used, and the errors of `Service.opened`."""
    asyncio.run(serve(checked, lambda: open_scorer(checked.scoring)))


async def serve(
    checked: CheckedServer,
    opened: OpenScorer,
    *,
    on_listening: Callable[[Service, int], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until the first signal, or until `stop` is set. The second signal ends the process.
    `on_listening` gets the service and the port."""
    service = Service(checked)
    app = make_app(service)
    place = listening_socket(checked)
    port = place.getsockname()[1]
    web = web_server(app)
    host = checked.settings.host
    shown = f"[{host}]" if ":" in host else host
    _log.info(f"listening on http://{shown}:{port}")
    if on_listening is not None:
        on_listening(service, port)
    stopping = asyncio.create_task((stop or asyncio.Event()).wait())
    signals = StopSignals(stopping)
    signals.arm()
    answering = asyncio.create_task(web.serve(sockets=[place]))
    working = asyncio.create_task(_work(service, opened, signals))
    try:
        await asyncio.wait({stopping, answering, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()  # raises what ended it
        if answering.done():
            raise InfrastructureError("the HTTP server ended by itself; start it again")
        await _drain(service, working)
    finally:
        web.should_exit = True
        await asyncio.gather(answering, return_exceptions=True)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        stopping.cancel()
        signals.disarm()
        place.close()
    if signals.received is not None:
        raise Interrupted(f"ended by {signals.received.name}")


async def _work(service: Service, opened: OpenScorer, signals: StopSignals) -> None:
    """Open the scorer and watch over its engines until cancelled."""
    async with service.opened(opened) as keeper:
        signals.arm()  # Ray has installed its own handlers
        keep_in_mind("requests that were under way have no answer, send them again")
        with rare_collections():
            _log.info("ready")
            await unless_lost(keeper.watch())


async def _drain(service: Service, working: asyncio.Task[None]) -> None:
    """Refuse new requests, and wait for the accepted ones as long as serve.drain_s."""
    service.draining = True
    drain_s = service.settings.drain_s
    if service.requests:
        _log.info(f"finishing {service.requests} accepted requests, at most {drain_s:g} s")
    loop = asyncio.get_running_loop()
    end = loop.time() + drain_s
    while service.requests and loop.time() < end and not working.done():
        await asyncio.sleep(_LOOK_S)
    if service.requests:
        _log.warning(f"{service.requests} accepted requests were not finished in {drain_s:g} s")


def listening_socket(checked: CheckedServer) -> socket.socket:
    """Return the socket that takes connections. Raises ConfigError where the address cannot be
    used."""
    host = checked.settings.host
    port = checked.settings.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # asyncio sends at once (TCP_NODELAY) only where the protocol is named; else the body of an
        # answer waits 40 ms for the client's acknowledgement of its head.
        place = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((host, port))
        place.listen(_BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"serve.host={host} serve.port={port} cannot be used ({error}); give another port, or 0"
            " for any free one"
        ) from error
    place.setblocking(False)
    return place

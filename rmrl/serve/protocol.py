"""Connections on the socket: what one may take of the server before its request is known. Sizes and
times of bodies are limited later, in `rmrl.serve.bodies`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rmrl.serve.connection import App

_log = logging.getLogger(__name__)
_of_clients = logging.getLogger(f"{__name__}.clients")
_of_clients.setLevel(logging.ERROR)  # warnings are about what strangers send

MOST_HEAD_BYTES = 16 * 2**10
"""Size of a request's line and headers."""
MOST_CONNECTIONS = 4096
"""Open connections; further ones are closed at once."""
_IDLE_S = 30
"""Seconds for a request's line and headers, and for the pause before the next request."""
_ANSWERS_WRITTEN_S = 5
"""Seconds for answers that are still being sent after the last one is scored."""


class Server(uvicorn.Server):
    """Leaves the signals to `StopSignals`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers."""
        yield


def web_server(app: App, *, idle_s: int = _IDLE_S) -> Server:
    """Return a server for an application. `idle_s`: see _IDLE_S."""
    return Server(
        uvicorn.Config(
            app,
            port=0,
            http=Connection,
            h11_max_incomplete_event_size=MOST_HEAD_BYTES,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=idle_s,
            timeout_graceful_shutdown=_ANSWERS_WRITTEN_S,
        )
    )


class Connection(H11Protocol):
    """A connection that is closed where no whole head of a request comes in time. uvicorn alone
    limits the pause between two requests, which one byte ends."""

    cycle: Any
    """The request that came last and its answer; None before the first."""
    _deadline: asyncio.TimerHandle | None = None
    _warned = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _of_clients

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Limit the time of the first request's head, and the number of connections."""
        super().connection_made(transport)
        self._limit()
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            if not Connection._warned:
                Connection._warned = True
                _log.warning(f"more than {MOST_CONNECTIONS} connections; further ones are closed")

    def data_received(self, data: bytes) -> None:
        """Limit the time of a head of which a part is here."""
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering:
            self._unlimit()
        elif self._deadline is None:
            self._limit()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the limit."""
        super().connection_lost(exc)
        self._unlimit()

    def _limit(self) -> None:
        self._deadline = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

    def _unlimit(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

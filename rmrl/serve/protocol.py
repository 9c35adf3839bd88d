"""Socket connections: how much a connection may take from the server before its request is known.
`rmrl.serve.bodies` limits body sizes and times later."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rmrl.serve.connection import MOST_HEAD_BYTES, App

_log = logging.getLogger(__name__)
_of_clients = logging.getLogger(f"{__name__}.clients")
_of_clients.setLevel(logging.ERROR)  # warnings are about what strangers send

MOST_CONNECTIONS = 4096
"""Open connections. Further connections are closed at once. Fewer where the process may open few
files."""
_BACKLOG = 2048
"""Connections that are accepted before the server sees that there are too many. Up to three times
as many."""
_FILES = 12_288
"""Files that the process needs for these connections, its engines and its workers: a third for
connections, half for connections that are accepted and closed."""
_IDLE_S = 30
"""Seconds for a request's line and headers, and for the pause before the next request."""
LEAST_READ_BYTES = 2**15
"""A client that reads less than this from an answer in _IDLE_S seconds has its connection
closed."""
_ANSWERS_WRITTEN_S = 5
"""Seconds for answers that are still being sent after the last one is scored."""


class Server(uvicorn.Server):
    """Leaves the signals to `StopSignals`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers."""
        yield


def web_server(app: App, *, idle_s: int = _IDLE_S) -> Server:
    """Return a server for an application. `idle_s`: as _IDLE_S. Raises the process's limit on open
    files: without a free file asyncio accepts nobody, and logs that a thousand times a second."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < _FILES:
        files = _FILES if most == resource.RLIM_INFINITY else min(most, _FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    files = _FILES if files == resource.RLIM_INFINITY else min(files, _FILES)
    Connection.most = min(MOST_CONNECTIONS, files // 3)
    return Server(
        uvicorn.Config(
            app,
            port=0,
            backlog=min(_BACKLOG, files // 6),
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


class Writes:
    """A transport that sends everything one turn of the loop writes, such as an answer's head and
    body, with one call to the system. That call costs more than everything else about a small
    answer's bytes. The rest is the transport's own."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send at the end of the turn, or at once where there is much: a client that does not read
        then pauses the writer."""
        if not data:
            return
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)
        self._size += len(data)
        if self._size > LEAST_READ_BYTES:
            self._flush()

    def close(self) -> None:
        """Send the waiting bytes and close."""
        self._flush()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that are not sent yet."""
        return self._size + self._transport.get_write_buffer_size()

    def _flush(self) -> None:
        if not self._pieces:
            return
        pieces = self._pieces
        self._pieces = []
        self._size = 0
        self._transport.writelines(pieces)


class Connection(H11Protocol):
    """A connection that is closed where no whole request head comes in time, or where an answer is
    not read. uvicorn alone limits the pause between two requests, which one byte ends, and keeps
    unread bytes for ever."""

    most: ClassVar[int] = MOST_CONNECTIONS
    """Open connections in the process."""
    cycle: Any
    """The last request and its answer. None before the first request."""
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    """The next look at the client's unread bytes."""
    _warned = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _of_clients

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Limit the time for the first request's head, and the number of connections."""
        super().connection_made(cast(asyncio.Transport, Writes(transport, self.loop)))
        self._limit()
        if len(self.connections) > self.most:
            transport.abort()
            if not Connection._warned:
                Connection._warned = True
                _log.warning(f"more than {self.most} connections; further ones are closed")

    def data_received(self, data: bytes) -> None:
        """Limit the time for a head that has arrived in part."""
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering:
            self._unlimit()
        elif self._deadline is None:
            self._limit()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the limits."""
        super().connection_lost(exc)
        self._unlimit()
        self._look_no_more()

    def pause_writing(self) -> None:
        """Check from now on whether the client reads."""
        super().pause_writing()
        self._look_again(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._look_no_more()

    def _look_again(self, unread: int) -> None:
        self._unread = self.loop.call_later(self.timeout_keep_alive, self._look, unread)

    def _look_no_more(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _look(self, before: int) -> None:
        """Close the connection where nearly all of the `before` bytes are still unread. An answer
        is written as a whole or waits, so no bytes came behind them."""
        unread = self.transport.get_write_buffer_size()
        if before - unread < LEAST_READ_BYTES:
            self.transport.abort()
        else:
            self._look_again(unread)

    def _limit(self) -> None:
        self._deadline = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

    def _unlimit(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

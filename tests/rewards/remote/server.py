"""A real HTTP server on 127.0.0.1 whose answers a test writes, and which counts what reaches it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from tests.patience import PATIENCE_S

KEY = "sk-test-0123456789abcdef"


@dataclass
class Reply:
    body: Any = None
    """bytes go out as they are, anything else as JSON."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    hang_up: bool = False
    """Close the connection without a word."""


@dataclass
class Seen:
    number: int
    """From 1."""
    path: str
    body: Any
    headers: dict[str, str]
    at: float
    """Seconds of `time.monotonic`; of the loop's clock where no connection is real."""


class Server(ThreadingHTTPServer):
    """`seen`: the requests so far; `answered`: how many of them have their answer; `sockets`: accepted
    connections; `most`: highest number of requests under way at once."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, answer: Callable[[Seen], Reply], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer = answer
        self.lock = threading.Lock()
        self.seen: list[Seen] = []
        self.sockets = self.under_way = self.most = self.answered = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def get_request(self) -> tuple[Any, Any]:
        found = super().get_request()
        with self.lock:
            self.sockets += 1
        return found

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    """Headers and body in one packet: with Nagle's algorithm two would wait for each other."""
    server: Server

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server = self.server
        with server.lock:
            seen = Seen(
                len(server.seen) + 1,
                self.path,
                json.loads(text) if text else None,
                dict(self.headers),
                time.monotonic(),
            )
            server.seen.append(seen)
            server.under_way += 1
            server.most = max(server.most, server.under_way)
        try:
            reply = server.answer(seen)
            time.sleep(reply.delay_s)
        finally:
            with server.lock:
                server.under_way -= 1
        self._send(reply)
        with server.lock:
            server.answered += 1

    do_GET = do_POST

    def _send(self, reply: Reply) -> None:
        if reply.hang_up:
            self.close_connection = True
            return
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in (
            {"Content-Type": "application/json", "Content-Length": str(len(body))} | reply.headers
        ).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class WithoutConnections(httpx.AsyncBaseTransport):
    """The same answers with no server and no connection, on the running loop's clock."""

    def __init__(self, answer: Callable[[Seen], Reply]) -> None:
        self.answer = answer
        self.seen: list[Seen] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        arrived = Seen(
            len(self.seen) + 1,
            request.url.path,
            json.loads(request.content),
            dict(request.headers),
            asyncio.get_running_loop().time(),
        )
        self.seen.append(arrived)
        reply = self.answer(arrived)
        await asyncio.sleep(reply.delay_s)
        return httpx.Response(reply.status, headers=reply.headers, json=reply.body)


@contextlib.contextmanager
def serving(answer: Callable[[Seen], Reply]) -> Iterator[Server]:
    server = Server(answer)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)


async def arrival(server: Server, count: int) -> None:
    """Return once `count` requests have reached the server."""
    async with asyncio.timeout(PATIENCE_S):
        while len(server.seen) < count:
            await asyncio.sleep(0.005)


def script(*replies: Reply) -> Callable[[Seen], Reply]:
    """One reply after another; the last one for good."""
    return lambda seen: replies[min(seen.number, len(replies)) - 1]

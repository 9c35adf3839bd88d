"""What every request passes before its route: the token, the server's state, the body's size, and
the watch over its connection. ASGI middleware without a framework."""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Collection
from dataclasses import dataclass, field

from rmrl.serve.bodies import Bodies
from rmrl.serve.caller import check_caller, is_open
from rmrl.serve.connection import (
    MOST_HEAD_BYTES,
    App,
    Message,
    Receive,
    Scope,
    Send,
    run_while_connected,
)
from rmrl.serve.problems import FAULT, RequestError
from rmrl.serve.service import Service

_log = logging.getLogger(__name__)

_CLIENT_GONE = 499
"""Code in metrics and the log where the client went away before its answer."""
_NO_ROUTE = "other"
"""Route in metrics and the log for an unknown path, which is the client's text."""
_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")


@dataclass(slots=True)
class Exchange:
    """One request and its answer's state."""

    scope: Scope
    receive: Receive
    send_raw: Send
    started: float = field(default_factory=time.monotonic)
    status: int = 0
    """The answer's status code. 0 before the answer begins."""

    async def send(self, message: Message) -> None:
        """Pass on a message from the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self.send_raw(message)

    async def refuse(self, error: RequestError) -> None:
        """Answer with an error, unless the answer has begun."""
        if self.status:
            return
        content = json.dumps(error.content).encode()
        headers = [(b"content-type", b"application/json")]
        headers.append((b"content-length", str(len(content)).encode()))
        for name, value in error.headers.items():
            headers.append((name.lower().encode(), value.encode("latin-1")))
        # The rest of a body that nobody reads would be taken for the next request.
        headers.append((b"connection", b"close"))
        await self.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": content})


def check_head(scope: Scope) -> None:
    """Raise RequestError 400 for a line and headers that are too large. The protocol itself limits
    only heads that come in several pieces."""
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    for name, value in scope["headers"]:
        size += len(name) + len(value) + len(": \r\n")
    if size > MOST_HEAD_BYTES:
        raise RequestError(
            400,
            f"the request's line and headers are larger than {MOST_HEAD_BYTES // 2**10} KiB; send"
            " shorter ones",
        )


class Gate:
    """Wraps the application."""

    def __init__(self, app: App, service: Service, *, paths: Collection[str]) -> None:
        """`paths`: the application's route paths, as labels in metrics."""
        self._app = app
        self._paths = paths
        self._service = service
        self._bodies = Bodies(service.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        try:
            await self.pass_on(exchange)
        except RequestError as error:
            await exchange.refuse(error)
        except Exception as error:
            # Without its message, which may hold a client's text.
            stack = "".join(traceback.format_tb(error.__traceback__))
            _log.error(f"a request ended with {type(error).__name__}:\n{stack}")
            await exchange.refuse(FAULT)
        finally:
            self.report(exchange)

    async def pass_on(self, exchange: Exchange) -> None:
        """Run the request's route. Raises RequestError for a refused request."""
        scope = exchange.scope
        check_head(scope)
        if not is_open(scope["method"], scope["path"]):
            check_caller(scope["headers"], self._service.checked.token)
        if scope["method"] in _WITHOUT_BODY:
            await self._app(scope, exchange.receive, exchange.send)
            return
        refusal = self._service.refusal()
        if refusal is not None:
            raise refusal
        self._service.requests += 1
        try:
            async with self._bodies.read(scope["headers"], exchange.receive) as body:
                await run_while_connected(
                    self._app, scope, body=body, receive=exchange.receive, send=exchange.send
                )
        finally:
            self._service.requests -= 1

    def report(self, exchange: Exchange) -> None:
        """Count the request and log it, without its query and its body."""
        scope = exchange.scope
        seconds = time.monotonic() - exchange.started
        path = scope["path"] if scope["path"] in self._paths else _NO_ROUTE
        code = exchange.status or _CLIENT_GONE
        self._service.metrics.answered(path, code, seconds)
        _log.debug(f"{scope['method']} {path} {code} {seconds:.3f} s")

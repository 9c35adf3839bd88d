"""Pooled HTTP client for one server: a deadline that includes the tries, backoff, a rate limit, no
call after cancellation.

The deadline of a request starts when it gets one of the `max_concurrency` places. Waiting for a
place is caused by the client, not by the server, and is bounded by the reward's `timeout_s`;
waiting for the rate limit and between tries counts. Environment variables that name proxies,
certificates or .netrc files are not read: a judge's traffic goes to the configured url only.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import random
import ssl
import time
import weakref
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from rmrl.clock import Clock
from rmrl.errors import ConfigError
from rmrl.rewards.remote.limits import TokenBucket
from rmrl.rewards.remote.refusals import error_message, retry_after_s
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.types import Status

MAX_ANSWER_BYTES = 16 * 2**20
"""Maximum size of one answer, decompressed. A verdict is thousands of times smaller."""
MAX_BACKOFF_S = 20.0
_SHOWN_CHARACTERS = 300
_SECRET_CHARACTERS = 6
"""Header values shorter than this are words, not secrets."""
_NEVER_AGAIN = ("insufficient_quota", "billing_hard_limit_reached")
"""Codes of a 429 for which waiting does not help."""


class RemoteCallError(Exception):
    """Final failure of a request. `failure` is its score's status, `detail` a sentence that
    never holds the key."""

    def __init__(self, failure: Status, detail: str, *, code: str = "") -> None:
        super().__init__(detail)
        self.failure: Status = failure
        self.detail = detail
        self.code = code
        """The server's own error code, such as "context_length_exceeded"."""


class _TryAgainError(Exception):
    """A failed try that may be repeated. `after_s`: the server's Retry-After."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s


@dataclass(slots=True)
class _Connections:
    """Connections of one event loop."""

    http: httpx.AsyncClient
    places: asyncio.Semaphore
    closed: bool = False


@dataclass(slots=True)
class _Call:
    """One request on its way."""

    url: str
    content: bytes
    deadline: float
    """On the event loop's clock."""
    tried: list[str] = field(default_factory=list)
    """The reason of each failed try so far."""

    def remaining_s(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()


class HTTPClient:
    """Posts JSON to one server. Event loops may follow one another: each has its own connections,
    all share the rate limit."""

    def __init__(
        self,
        spec: HTTPSpec,
        *,
        backoff_s: float = 0.5,
        clock: Clock = time.monotonic,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Raise ConfigError where the environment variable of the key is not set.

        `backoff_s`: the first pause between tries, in seconds. `clock`: of the rate limit, which
        outlives event loops; deadlines and pauses are on the running loop's. `transport`: carries
        the requests instead of connections.
        """
        self._spec = spec
        self._backoff_s = backoff_s
        self._headers = _headers(spec)
        self._secrets = _secrets(self._headers)
        self._limit: TokenBucket | None = None
        if spec.requests_per_minute is not None:
            self._limit = TokenBucket(spec.requests_per_minute, clock)
        self._transport = transport
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections] = (
            weakref.WeakKeyDictionary()
        )
        parts = urlsplit(spec.url)
        port = f":{parts.port}" if parts.port else ""
        self.shown_url = f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"
        """The address without user, password and query, which may be secret."""
        # httpx logs a line at INFO for every single request.
        if logging.getLogger("httpx").level == logging.NOTSET:
            logging.getLogger("httpx").setLevel(logging.WARNING)

    async def post(self, body: Any, path: str = "") -> Any:
        """Post `body` to the spec's url plus `path` and return the parsed JSON answer. Raises
        RemoteCallError."""
        connections = self._connections()
        content = json.dumps(body).encode("ascii")
        url = self._spec.url
        if path:
            url = url.rstrip("/") + path
        async with connections.places:
            deadline = asyncio.get_running_loop().time() + self._spec.timeout_s
            call = _Call(url, content, deadline)
            try:
                async with asyncio.timeout_at(call.deadline):
                    return await self._until_answered(connections, call)
            except TimeoutError:
                raise self._timeout(call) from None

    async def aclose(self) -> None:
        """End the running loop's connections. Its requests still under way fail as `cancelled`. A
        later `post` opens new ones."""
        connections = self._by_loop.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            connections.closed = True
            await connections.http.aclose()

    def shown(self, text: str) -> str:
        """Return `text` on one line, shortened, without the key and any header value."""
        for secret in self._secrets:
            text = text.replace(secret, "<secret>")
        text = " ".join(text.split())
        if len(text) > _SHOWN_CHARACTERS:
            return f"{text[:_SHOWN_CHARACTERS]}..."
        return text

    def _connections(self) -> _Connections:
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            count = self._spec.max_concurrency
            limits = httpx.Limits(
                max_connections=count, max_keepalive_connections=count, keepalive_expiry=15.0
            )
            http = httpx.AsyncClient(
                headers=self._headers,
                limits=limits,
                transport=self._transport,
                timeout=None,
                trust_env=False,
                follow_redirects=False,
                verify=_certificates(),
            )
            self._by_loop[loop] = _Connections(http, asyncio.Semaphore(count))
        return self._by_loop[loop]

    async def _until_answered(self, connections: _Connections, call: _Call) -> Any:
        while True:
            await self._take_turn(call)
            if connections.closed:
                raise self._closed()
            try:
                return await self._try(connections.http, call)
            except _TryAgainError as failed:
                if connections.closed:
                    raise self._closed() from None
                call.tried.append(failed.reason)
                await self._pause(call, failed.after_s)

    async def _take_turn(self, call: _Call) -> None:
        if self._limit is None:
            return
        wait_s = self._limit.reserve()
        try:
            if wait_s > call.remaining_s():
                raise self._timeout(
                    call,
                    f"the limit of {self._spec.requests_per_minute:g} requests a minute leaves no"
                    " turn for it",
                )
            await asyncio.sleep(wait_s)
        except (RemoteCallError, asyncio.CancelledError):
            self._limit.give_back()
            raise

    async def _try(self, http: httpx.AsyncClient, call: _Call) -> Any:
        received = bytearray()
        try:
            async with http.stream("POST", call.url, content=call.content) as answer:
                async for part in answer.aiter_bytes():
                    received += part
                    if len(received) > MAX_ANSWER_BYTES:
                        limit = f"{MAX_ANSWER_BYTES // 2**20} MiB"
                        raise self._failed(f"its answer is longer than {limit}")
        except (
            httpx.UnsupportedProtocol,
            httpx.LocalProtocolError,
            httpx.InvalidURL,
            httpx.DecodingError,
        ) as error:
            raise self._failed(f"{type(error).__name__}: {self.shown(str(error))}") from None
        except (httpx.TransportError, RuntimeError) as error:
            # httpx raises RuntimeError where a client was closed during a request; the caller
            # checks `closed`.
            reason = self.shown(str(error)) or "the connection broke"
            raise _TryAgainError(f"{type(error).__name__}: {reason}") from None
        body = bytes(received)
        if not answer.is_success:
            raise self._refusal(answer, body)
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            text = self.shown(body[:4096].decode("utf-8", "replace"))
            raise self._failed(f"its answer is no JSON: '{text}'") from None

    def _refusal(self, answer: httpx.Response, body: bytes) -> Exception:
        """Return the error of an answer that is not 2xx: to be tried again, or final."""
        message, code = error_message(body)
        reason = f"{answer.status_code} {answer.reason_phrase}".strip()
        if message:
            reason += f": {self.shown(message)}"
        if answer.is_redirect:
            target = self.shown(answer.headers.get("location", "another address").partition("?")[0])
            return self._failed(
                f"it answered {reason} and points to {target}; give the address that answers"
                " itself",
                code,
            )
        if (answer.status_code == 429 and code not in _NEVER_AGAIN) or answer.status_code >= 500:
            return _TryAgainError(reason, retry_after_s(answer.headers.get("retry-after", "")))
        return self._failed(f"it answered {reason}", code)

    async def _pause(self, call: _Call, after_s: float | None) -> None:
        """Sleep before the next try. Raises RemoteCallError where there is none."""
        if len(call.tried) >= self._spec.max_tries:
            raise self._failed(
                f"all {len(call.tried)} tries failed, the last with {call.tried[-1]}"
            )
        backoff_s = min(MAX_BACKOFF_S, self._backoff_s * 2 ** (len(call.tried) - 1))
        pause_s = backoff_s * random.uniform(0.5, 1.0)
        if after_s is not None:
            if after_s > call.remaining_s():
                raise self._timeout(call, f"it asked to wait {after_s:.4g} s")
            pause_s = max(after_s, pause_s)
        await asyncio.sleep(pause_s)

    def _timeout(self, call: _Call, why: str = "") -> RemoteCallError:
        detail = f"{self.shown_url} gave no answer within {self._spec.timeout_s:g} s"
        if call.tried:
            detail += f" after {len(call.tried)} failed tries, the last with {call.tried[-1]}"
        if why:
            detail += f": {why.rstrip('.')}"
        return RemoteCallError("timeout", f"{detail}.")

    def _closed(self) -> RemoteCallError:
        return RemoteCallError(
            "cancelled",
            f"The connections to {self.shown_url} were closed before the request was answered.",
        )

    def _failed(self, why: str, code: str = "") -> RemoteCallError:
        return RemoteCallError(
            "provider_error",
            f"{self.shown_url} gave no usable answer: {why.rstrip('.')}.",
            code=code,
        )


def api_key(spec: HTTPSpec) -> str:
    """Return the key from the environment, "" where no variable is named. Raises ConfigError naming
    the variable where the key cannot be used."""
    if not spec.api_key_env:
        return ""
    key = os.environ.get(spec.api_key_env, "").strip()
    if not key:
        raise ConfigError(
            f"the environment variable {spec.api_key_env} is not set, and {spec.url} needs the key"
            " in it; export it"
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"the environment variable {spec.api_key_env} holds characters that no HTTP header can;"
            " export the plain key"
        )
    return key


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Load the certificates shipped with httpx, once: reading them takes longer than a request."""
    return httpx.create_ssl_context(trust_env=False)


def _headers(spec: HTTPSpec) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    key = api_key(spec)
    if key:
        headers["Authorization"] = f"Bearer {key}"
    for name, value in spec.headers.items():
        headers[str(name)] = str(value)
    return headers


def _secrets(headers: dict[str, str]) -> list[str]:
    """Return the header values that must not be printed, the longest first."""
    secrets: set[str] = set()
    for name, value in headers.items():
        if name not in ("Content-Type", "Accept"):
            secrets |= {value, value.removeprefix("Bearer ")}
    long = [secret for secret in secrets if len(secret) >= _SECRET_CHARACTERS]
    return sorted(long, key=len, reverse=True)

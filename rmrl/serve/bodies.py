"""Bodies of requests: their size and time, and JSON that is read so that nothing in it can end in
an error of the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from rmrl.config.schema import ServerConfig
from rmrl.serve.connection import Receive
from rmrl.serve.problems import RequestError

MOST_LEVELS = 64
"""Depth of lists and objects in a body."""
MOST_FIELDS = 1000
"""Fields of the object that a body is: each unknown one may be an error of its own."""
_MIB = 2**20
_FULL_RETRY_S = 5.0


class Bodies:
    """The bodies that are read or held at present."""

    def __init__(self, settings: ServerConfig) -> None:
        self._settings = settings
        self._most_bytes = int(settings.max_body_mb * _MIB)
        self.held_bytes = 0

    @asynccontextmanager
    async def read(
        self, headers: Iterable[tuple[bytes, bytes]], receive: Receive
    ) -> AsyncIterator[bytes]:
        """Read a body and count it for the block.

        Raises RequestError: 413 for one that is too large, also where no header states its size;
        429 where all bodies together are; 408 where it comes too slowly; 400 where it breaks off.
        """
        stated = dict(headers).get(b"content-length", b"")
        if stated.isdigit() and (len(stated) > 15 or int(stated) > self._most_bytes):
            raise self.too_large()
        pieces: list[bytes] = []
        try:
            try:
                async with asyncio.timeout(self._settings.body_timeout_s):
                    await self.collect(receive, pieces)
            except TimeoutError as error:
                raise RequestError(
                    408,
                    f"the body did not come within {self._settings.body_timeout_s:g} s"
                    " (serve.body_timeout_s)",
                ) from error
            yield b"".join(pieces)
        finally:
            self.held_bytes -= sum(map(len, pieces))

    async def collect(self, receive: Receive, pieces: list[bytes]) -> None:
        """Add the pieces of a body as they come. Raises RequestError."""
        size = 0
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestError(400, "the connection ended before the body did")
            piece = message.get("body", b"")
            pieces.append(piece)
            size += len(piece)
            self.held_bytes += len(piece)
            self.check_size(size)
            more = message.get("more_body", False)

    def check_size(self, size: int) -> None:
        """Raise RequestError where one body, or all of them, are too large."""
        if size > self._most_bytes:
            raise self.too_large()
        if self.held_bytes > self._settings.max_bodies_mb * _MIB:
            raise RequestError(
                429,
                "the bodies of the present requests take all the memory that there is for them"
                " (serve.max_bodies_mb); send the request again later",
                retry_after_s=_FULL_RETRY_S,
            )

    def too_large(self) -> RequestError:
        """Return the answer to a body above serve.max_body_mb."""
        return RequestError(
            413,
            f"the body is larger than {self._settings.max_body_mb:g} MiB (serve.max_body_mb); send"
            " the rows in several requests",
        )


def parsed(body: bytes) -> Any:
    """Return the value of a JSON text. Raises RequestError 422 for anything that is not JSON, for
    NaN and infinities, for keys that are no text, for too many fields, and for values that are
    nested too deep."""
    try:
        value = json.loads(body, parse_constant=_refuse)
    except RecursionError as error:
        raise _too_deep() from error
    except UnicodeDecodeError as error:
        raise RequestError(
            422, f"the body is not UTF-8 (byte {error.start}); send JSON in UTF-8", field="body"
        ) from error
    except json.JSONDecodeError as error:
        raise RequestError(
            422,
            f"the body is not JSON ({error.msg} at character {error.pos}); send a JSON object",
            field="body",
        ) from error
    except ValueError as error:  # an integer of thousands of digits
        raise RequestError(
            422, "the body has a number with too many digits; send it as a string", field="body"
        ) from error
    if isinstance(value, dict) and len(value) > MOST_FIELDS:
        raise RequestError(
            422,
            f"the body has {len(value)} fields; send at most {MOST_FIELDS}",
            field="body",
        )
    try:
        check_values(value)
    except UnicodeEncodeError as error:
        raise RequestError(
            422, "a key holds half a letter (a lone surrogate); correct it", field="body"
        ) from error
    return value


def _refuse(name: str) -> NoReturn:
    raise RequestError(422, f"the body holds {name}, which JSON lacks; send null", field="body")


def _too_deep() -> RequestError:
    return RequestError(
        422,
        f"the body is nested more than {MOST_LEVELS} levels deep; send flatter values",
        field="body",
    )


def check_values(value: Any) -> None:
    """Refuse values that are nested too deep, numbers such as 1e999 that a float cannot hold.
    Raises UnicodeEncodeError for half a letter in a key, as pydantic makes an error of each one."""
    level = [value]
    for _ in range(MOST_LEVELS):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(each.values())
                "".join(each).encode()
            elif isinstance(each, list):
                inner.extend(each)
            elif isinstance(each, float) and each in (float("inf"), float("-inf")):
                _refuse("a number that is too large")
        if not inner:
            return
        level = inner
    raise _too_deep()

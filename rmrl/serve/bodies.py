"""Request bodies: their size and time, and JSON read so that nothing in it can end in a server
error, nor keep the server from other requests.

Parsing, like every call into C, lets no other thread run until it ends, so a separate thread does
not help against millions of values. The values are counted beforehand, one piece after another.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

from rmrl.config.schema import ServerConfig
from rmrl.serve.connection import Receive
from rmrl.serve.problems import RequestError

MOST_LEVELS = 64
"""Depth of lists and objects in a body."""
MOST_FIELDS = 1000
"""Fields in a body's object. Each unknown field may be an error of its own."""
LONG_DIGITS = 100
MOST_LONG_DIGITS = 50_000
"""Digits in all integers with more than LONG_DIGITS together. Reading or writing one takes time in
the square of its digits."""
SMALL_BYTES = 2**15
"""Bodies up to this size are worked on at once, larger bodies beside the other requests."""
_MIB = 2**20
_FULL_RETRY_S = 5.0
_PIECE_BYTES = 2**16
"""Size of the piece in a body that is counted before other threads have their turn."""
_MARKS = (b",", b":", b"[", b"{")

Result = TypeVar("Result")
_size: ContextVar[int] = ContextVar("size of the present request's body", default=SMALL_BYTES + 1)


async def aside(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function on a request's values and return its result: in a thread for a large body, at
    once for a small body, which costs less than the thread."""
    if _size.get() <= SMALL_BYTES:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


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

        Raises RequestError: 413 for a body that is too large, also where no header states its size.
        429 where all bodies together are too large. 408 where the body comes too slowly. 400 where
        it breaks off.
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
        """Add a body's pieces as they come. Raises RequestError."""
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


class BodyReader:
    """Reads values from bodies."""

    def __init__(self, settings: ServerConfig) -> None:
        self._most_values = settings.max_body_values
        self._large = asyncio.Semaphore(1)

    async def read(self, body: bytes, checked: Callable[[Any], Result]) -> Result:
        """Return the value that `checked` makes from the body. Large bodies have their turn one
        after another, so that the processor time and the memory that they take do not add up.
        Raises any error from `parsed` and `checked`."""
        _size.set(len(body))
        if len(body) <= SMALL_BYTES:
            return checked(parsed(body))
        async with self._large:
            return await asyncio.to_thread(self._read, body, checked)

    def _read(self, body: bytes, checked: Callable[[Any], Result]) -> Result:
        check_count(body, self._most_values)
        return checked(parsed(body))


def check_count(body: bytes, most: int) -> None:
    """Raise RequestError 413 for more than `most` values, keys, lists and objects, all together, in
    a JSON text."""
    if sum(map(body.count, _MARKS)) <= most:
        return  # wherever they stand
    # A quotation mark behind a backslash ends no text. Pairs of backslashes go first: the second
    # of a pair escapes nothing.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    count = 0
    inside = 0
    for start in range(0, len(plain), _PIECE_BYTES):
        parts = plain[start : start + _PIECE_BYTES].split(b'"')
        outside = b"".join(parts[inside::2])
        count += sum(map(outside.count, _MARKS))
        if count > most:
            raise RequestError(
                413,
                f"the body holds more than {most} values, keys and lists"
                " (serve.max_body_values); send the rows in several requests",
                field="body",
            )
        inside = (inside + len(parts) - 1) % 2


def parsed(body: bytes) -> Any:
    """Return the value of a JSON text. Raises RequestError 422 for anything that is not JSON, for
    NaN and infinities, for keys that are no text, for too many fields or digits, and for values
    that are nested too deep."""
    try:
        value = json.loads(body, parse_constant=_refuse, parse_int=_Integers().read)
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


class _Integers:
    """Reads a body's integers."""

    def __init__(self) -> None:
        self._long_digits = 0

    def read(self, digits: str) -> int:
        """Return an integer. Raises RequestError for one long integer too many."""
        if len(digits) > LONG_DIGITS:
            self._long_digits += len(digits)
            if self._long_digits > MOST_LONG_DIGITS:
                raise RequestError(
                    422,
                    f"the body's integers of more than {LONG_DIGITS} digits have more than"
                    f" {MOST_LONG_DIGITS} together; send them as strings",
                    field="body",
                )
        return int(digits)


def _refuse(name: str) -> NoReturn:
    raise RequestError(422, f"the body holds {name}, which JSON lacks; send null", field="body")


def _too_deep() -> RequestError:
    return RequestError(
        422,
        f"the body is nested more than {MOST_LEVELS} levels deep; send flatter values",
        field="body",
    )


def check_values(value: Any) -> None:
    """Refuse values that are nested too deep, and numbers such as 1e999 that a float cannot hold.
    Raises UnicodeEncodeError for half a letter in a key, because pydantic makes an error for each
    such key."""
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

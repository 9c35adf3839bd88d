"""Clients of a reward server for benchmarks.serve: plain connections that post bodies made before
the clock starts."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

SCORE = "/v1/score"


@dataclass(slots=True)
class Load:
    """What a group of clients saw."""

    seconds: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    """One per answer with status 200."""
    codes: Counter[str] = field(default_factory=Counter)
    """Answers by status code; "closed": the connection ended without one, "cancelled": the client
    went away."""
    answers: dict[int, Any] = field(default_factory=dict)
    """Number of the body -> its answer, where it was 200."""

    def numbers(self, rows: int) -> dict[str, Any]:
        """Rows per second, percentiles of the latency in milliseconds, and answers by code."""
        numbers: dict[str, Any] = {"rows_per_s": round(rows / self.seconds, 1)}
        for share in (50, 95, 99):
            milliseconds = percentile(self.latencies_s, share) * 1000
            numbers[f"p{share}_ms"] = round(milliseconds, 1)
        return {**numbers, "codes": dict(sorted(self.codes.items()))}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is at least as large as `share` percent of them; 0 without any."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = -(-len(ordered) * share // 100)
    return ordered[max(int(place), 1) - 1]


class Connection:
    """A connection that is kept open between requests."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(
        self, method: str, path: str, body: bytes = b"", *, trickle_s: float = 0.0
    ) -> tuple[int, bytes]:
        """Return status code and body. `trickle_s`: pause after each of 64 parts of the body.
        Raises OSError or IncompleteReadError where the connection ends."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
        reader, writer = self._streams
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode())
        size = len(body) if trickle_s <= 0 else max(len(body) // 64, 1)
        for start in range(0, len(body), size or 1):
            writer.write(body[start : start + size])
            await writer.drain()
            if trickle_s > 0:
                await asyncio.sleep(trickle_s)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self.close()
        return status, content

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


@dataclass(slots=True, kw_only=True)
class Clients:
    """`count` clients that share the bodies; each sends its next one when its last is answered."""

    port: int
    count: int
    bodies: Sequence[bytes]
    path: str = SCORE
    trickle_s: float = 0.0
    """See `Connection.request`."""
    cancel_every: int = 0
    """Every n-th request is cancelled `cancel_after_s` after it was sent; 0: none."""
    cancel_after_s: float = 0.02
    until: float | None = None
    """`time.monotonic()` at which clients stop; bodies are sent again and again then."""

    async def run(self) -> Load:
        """Send all bodies."""
        load = Load()
        began = time.perf_counter()
        await asyncio.gather(*(self._client(number, load) for number in range(self.count)))
        load.seconds = time.perf_counter() - began
        return load

    async def _client(self, number: int, load: Load) -> None:
        connection = Connection(self.port)
        while True:
            for place in range(number, len(self.bodies), self.count):
                if self.until is not None and time.monotonic() >= self.until:
                    connection.close()
                    return
                await self._one(connection, place, load)
            if self.until is None or number >= len(self.bodies):
                connection.close()
                return

    async def _one(self, connection: Connection, place: int, load: Load) -> None:
        began = time.perf_counter()
        body = self.bodies[place]
        sending = connection.request("POST", self.path, body, trickle_s=self.trickle_s)
        cancelled = bool(self.cancel_every) and place % self.cancel_every == 0
        try:
            async with asyncio.timeout(self.cancel_after_s if cancelled else None):
                status, content = await sending
        except TimeoutError:
            load.codes["cancelled"] += 1
            connection.close()
            return
        except (OSError, asyncio.IncompleteReadError):
            load.codes["closed"] += 1
            connection.close()
            return
        load.codes[str(status)] += 1
        if status == 200:
            load.latencies_s.append(time.perf_counter() - began)
            if self.until is None:
                load.answers[place] = json.loads(content)


def bodies_of(rows: Sequence[dict[str, Any]], size: int) -> list[bytes]:
    """Bodies of /v1/score with `size` rows each."""
    bodies: list[bytes] = []
    for start in range(0, len(rows), size):
        bodies.append(json.dumps({"rows": rows[start : start + size]}).encode())
    return bodies

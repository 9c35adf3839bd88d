"""What a connection may take of the server before its request is known."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast

import httpx
import pytest

from rmrl.serve import protocol
from tests.patience import PATIENCE_S
from tests.serve.conftest import Served
from tests.serve.live import live
from tests.virtual_time import MovedClock

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
IDLE_S = 60
"""Seconds on a clock that the tests move."""


BUFFER_BYTES = 2**16
"""Half of the space that the machine has for an answer to a client with a `small_buffer`."""


def connected(address: str, *, small_buffer: bool = False) -> socket.socket:
    url = httpx.URL(address)
    client = socket.socket()
    if small_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    client.settimeout(PATIENCE_S)
    client.connect((url.host, url.port))
    return client


def until_closed(client: socket.socket, clock: MovedClock | None = None) -> bytes:
    """What comes before the server closes the connection. `clock` goes on by `IDLE_S` with each
    pause."""
    received = b""
    if clock is not None:
        client.settimeout(0.1)
    with suppress(ConnectionResetError):
        while True:
            try:
                piece = client.recv(65536)
            except TimeoutError:
                assert clock is not None
                clock.add(IDLE_S)
                continue
            if not piece:
                break
            received += piece
    return received


def test_a_head_is_limited_in_size(served: Served) -> None:
    with live(served) as address, connected(address) as client:
        client.sendall(HEAD + b"X: " + b"a" * 2 * protocol.MOST_HEAD_BYTES)
        assert until_closed(client).startswith(b"HTTP/1.1 400")


def test_a_head_in_one_piece_is_limited_too(served: Served) -> None:
    fits = b"a" * (protocol.MOST_HEAD_BYTES - 200)
    with live(served) as address:
        for value, code in ((fits, b"200"), (fits + b"a" * 400, b"400")):
            with connected(address) as client:
                client.sendall(HEAD + b"Connection: close\r\nX: " + value + b"\r\n\r\n")
                assert until_closed(client).startswith(b"HTTP/1.1 " + code)


def test_a_head_that_never_ends_closes_its_connection(served: Served) -> None:
    clock = MovedClock()
    with live(served, idle_s=IDLE_S, clock=clock) as address, ExitStack() as stack:
        silent, first, later = (stack.enter_context(connected(address)) for _ in range(3))
        first.sendall(HEAD)
        later.sendall(HEAD + b"\r\n")
        assert later.recv(65536).startswith(b"HTTP/1.1 200")
        later.sendall(HEAD)  # the one byte that ends the pause, and no more
        for client in (silent, first, later):
            assert b"200" not in until_closed(client, clock)


def test_a_request_that_takes_longer_than_a_head_may_is_answered(served: Served) -> None:
    begun, may_end = served.bench.folder / "begun", served.bench.folder / "may end"
    (served.bench.folder / "functions" / "slow.py").write_text(
        "import pathlib, time\ndef compute_score(data_source, solution_str, ground_truth):\n"
        f"    pathlib.Path({str(begun)!r}).touch()\n"
        f"    while not pathlib.Path({str(may_end)!r}).exists():\n        time.sleep(0.01)\n"
        "    return 1.0\n"
    )
    clock = MovedClock()
    overrides = ("reward.models=[slow]", "reward.rule_timeout_s=600")
    with live(served, *overrides, idle_s=IDLE_S, clock=clock) as address:
        rows = [{"prompt": "p", "response": "r"}]
        with ThreadPoolExecutor() as threads:
            post = threads.submit(
                httpx.post, f"{address}/v1/score", json={"rows": rows}, timeout=PATIENCE_S
            )
            while not begun.exists():
                time.sleep(0.01)
            clock.add(2 * IDLE_S)
            may_end.touch()
            assert post.result().json()["rows"][0]["reward"] == 1.0


def test_connections_are_limited_in_number(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MOST_CONNECTIONS", 1)
    with live(served) as address:
        with connected(address) as first:
            first.sendall(HEAD + b"\r\n")
            assert first.recv(65536).startswith(b"HTTP/1.1 200")
            with connected(address) as second:
                second.sendall(HEAD + b"\r\n")
                assert until_closed(second) == b""
        with connected(address) as third:
            third.sendall(HEAD + b"\r\n")
            assert third.recv(65536).startswith(b"HTTP/1.1 200")


def test_stray_bytes_leave_no_line_in_the_log(
    served: Served, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with live(served) as address:
        for stray in (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"{}\r\n\r\n"):
            with connected(address) as client:
                client.sendall(stray)
                assert until_closed(client).startswith(b"HTTP/1.1 400")
        upgrade = HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        with connected(address) as client:
            client.sendall(upgrade)
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
    assert not [record for record in caplog.records if "HTTP request" in record.getMessage()]
    assert not [record for record in caplog.records if "pgrade" in record.getMessage()]
    assert "Invalid HTTP" not in capfd.readouterr().err


def test_head_is_answered_without_a_body(served: Served) -> None:
    with live(served) as address, connected(address) as client:
        client.sendall(b"HEAD /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head, _, body = until_closed(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b""


def test_a_body_larger_than_a_head_arrives_whole(served: Served) -> None:
    rows = [{"prompt": "p", "response": "x" * 3_000_000}]
    with live(served) as address:
        answer = httpx.post(f"{address}/v1/score", content=json.dumps({"rows": rows}), timeout=60,
                            headers={"Content-Type": "application/json"})  # fmt: skip
    assert answer.json()["rows"][0]["score_length"] == 300_000.0


def test_an_answer_that_is_not_read_closes_its_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NeMo Gym's wire sends the fields of the request back: 12 MB. Of two clients one reads some in
    each pause, more than the machine's own buffers hold, and one nothing."""
    connection_made = protocol.Connection.connection_made

    def with_small_buffer(connection: protocol.Connection, transport: asyncio.Transport) -> None:
        accepted = transport.get_extra_info("socket")
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        connection_made(connection, transport)

    monkeypatch.setattr(protocol.Connection, "connection_made", with_small_buffer)
    episode = {
        "responses_create_params": {"input": "p"},
        "response": {"output": [{"type": "message", "role": "assistant", "content": "r"}]},
        "padding": "x" * 12_000_000,
    }
    body = json.dumps(episode).encode()
    head = (
        "POST /verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    clock = MovedClock()
    with (
        live(served, "serve.wires=[nemo_gym]", idle_s=IDLE_S, clock=clock) as address,
        connected(address, small_buffer=True) as idle,
        connected(address, small_buffer=True) as reading,
    ):
        for client in (idle, reading):
            client.sendall(head.encode() + body)
        for client in (idle, reading):
            client.recv(1, socket.MSG_PEEK)  # its answer has begun
        received = 0
        moved_at = 0
        while piece := reading.recv(2**18):
            received += len(piece)
            if received - moved_at > 4_000_000:
                moved_at = received
                clock.add_and_wait(IDLE_S)
        assert received > len(body)
        assert len(until_closed(idle, clock)) < len(body)


FEW_FILES = """
import asyncio, resource
from rmrl.serve.protocol import web_server
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 240))

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"here"})

async def serve():
    server = web_server(app)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving

asyncio.run(serve())
"""


def test_idle_connections_leave_the_process_files(tmp_path: Path) -> None:
    """240 files at most: 80 connections are kept of 400. Without a free file asyncio wrote two
    megabytes a second of errors, and nobody was answered any more."""
    with (
        (tmp_path / "log").open("w+") as log,
        subprocess.Popen(
            [sys.executable, "-c", FEW_FILES], stdout=subprocess.PIPE, stderr=log, text=True
        ) as server,
        ExitStack() as stack,
    ):
        stack.callback(server.kill)
        assert server.stdout is not None
        address = f"http://127.0.0.1:{int(server.stdout.readline())}"
        with ExitStack() as idle:
            for _ in range(400):
                idle.enter_context(connected(address))
            end = time.monotonic() + PATIENCE_S
            while len(list(Path(f"/proc/{server.pid}/fd").iterdir())) >= 120:
                assert time.monotonic() < end  # asyncio tries again after one second
                time.sleep(0.05)
        answer = httpx.get(address, timeout=PATIENCE_S)
        assert answer.text == "here"
        log.seek(0)
        text = log.read()
        assert "more than 80 connections" in text
        assert "Traceback" not in text


class Sent:
    """A transport that keeps each call's bytes."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.closed = False

    def writelines(self, pieces: list[bytes]) -> None:
        self.calls.append(b"".join(pieces))

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True


async def test_what_one_turn_writes_is_sent_together() -> None:
    sent = Sent()
    writes = protocol.Writes(cast(asyncio.Transport, sent), asyncio.get_running_loop())
    writes.write(b"head ")
    writes.write(b"body")
    writes.write(b"")
    assert writes.get_write_buffer_size() == 9
    assert sent.calls == []
    await asyncio.sleep(0)
    assert sent.calls == [b"head body"]
    writes.write(b"x" * (protocol.LEAST_READ_BYTES + 1))  # much: the next one may have to wait
    assert len(sent.calls) == 2
    writes.write(b"last")
    writes.close()
    assert sent.calls[2:] == [b"last"]
    assert sent.closed
    await asyncio.sleep(0)
    assert len(sent.calls) == 3

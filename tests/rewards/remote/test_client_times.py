"""Deadlines, pauses and the rate limit of the client, to the moment, on a clock that jumps."""

from __future__ import annotations

import asyncio
import email.utils
import time
from typing import Any

import pytest

from rmrl.rewards.remote import client as client_module
from rmrl.rewards.remote.client import HTTPClient, RemoteCallError
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.together import together
from tests.rewards.remote.server import Reply, WithoutConnections, script
from tests.virtual_time import VirtualLoop

pytestmark = pytest.mark.virtual_time


def client_of(server: WithoutConnections, *, backoff_s: float = 0.01, **changes: Any) -> HTTPClient:
    settings: dict[str, Any] = {"url": "http://judge/score", "wire": "slime"} | changes
    return HTTPClient(
        HTTPSpec(**settings),
        backoff_s=backoff_s,
        clock=lambda: asyncio.get_running_loop().time(),
        transport=server,
    )


async def failure_of(client: HTTPClient) -> RemoteCallError:
    with pytest.raises(RemoteCallError) as caught:
        await client.post(1)
    return caught.value


def moments(server: WithoutConnections) -> list[float]:
    return [seen.at for seen in server.seen]


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_too_many_requests_waits_as_long_as_the_server_says() -> None:
    server = WithoutConnections(
        script(Reply({"error": "slow down"}, 429, {"Retry-After": "0.4"}), Reply(7))
    )
    assert await client_of(server).post(1) == 7
    assert moments(server) == [0.0, 0.4]


async def test_retry_after_may_be_a_date() -> None:
    date = email.utils.formatdate(time.time() + 7200, usegmt=True)  # a whole second
    server = WithoutConnections(script(Reply("later", 503, {"Retry-After": date}), Reply(7)))
    assert await client_of(server, timeout_s=10_000.0).post(1) == 7
    assert 7000 <= now() <= 7200


async def test_the_pause_between_tries_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module.random, "uniform", lambda low, high: high)
    server = WithoutConnections(script(Reply(1, 500)))
    await failure_of(client_of(server, max_tries=4, backoff_s=0.25))
    assert moments(server) == [0.0, 0.25, 0.75, 1.75]


async def test_a_pause_is_half_to_the_whole_of_it() -> None:
    server = WithoutConnections(script(Reply(1, 500)))
    await failure_of(client_of(server, max_tries=4, backoff_s=0.1))
    first, second, third, fourth = moments(server)
    assert 0.05 <= second - first <= 0.1
    assert 0.1 <= third - second <= 0.2
    assert 0.2 <= fourth - third <= 0.4


async def test_the_deadline_cuts_a_slow_answer() -> None:
    server = WithoutConnections(script(Reply(1, delay_s=3.0)))
    error = await failure_of(client_of(server, timeout_s=0.3))
    assert now() == 0.3
    assert error.failure == "timeout"
    assert "no answer within 0.3 s" in error.detail


async def test_the_deadline_includes_the_tries() -> None:
    server = WithoutConnections(script(Reply({"detail": "busy"}, 503, delay_s=0.2)))
    error = await failure_of(client_of(server, timeout_s=0.7, max_tries=1000))
    assert now() == 0.7
    assert 3 <= len(server.seen) <= 4  # a try takes 0.2 s and a little
    assert error.failure == "timeout"
    assert "503 Service Unavailable: busy" in error.detail


async def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    server = WithoutConnections(script(Reply("", 429, {"Retry-After": "120"})))
    error = await failure_of(client_of(server, timeout_s=30.0))
    assert now() == 0.0
    assert error.failure == "timeout"
    assert "asked to wait 120 s" in error.detail


async def test_waiting_for_a_place_is_not_counted() -> None:
    server = WithoutConnections(script(Reply(1, delay_s=0.9)))
    client = client_of(server, max_concurrency=1, timeout_s=4.0)
    # The last of 6 waits 5 * 0.9 = 4.5 s for its place, longer than the deadline of one request.
    assert await together(client.post(i) for i in range(6)) == [1] * 6
    assert now() == pytest.approx(5.4)


async def test_the_rate_limit_holds() -> None:
    server = WithoutConnections(script(Reply(1)))
    client = client_of(server, requests_per_minute=600)
    await together(client.post(i) for i in range(18))
    # 10 a second: 10 at once, then one each 0.1 s
    one_by_one = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    assert moments(server) == pytest.approx([0.0] * 10 + one_by_one)


async def test_tries_count_against_the_rate_limit() -> None:
    server = WithoutConnections(script(Reply(1, 500), Reply(1, 500), Reply(1)))
    await client_of(server, requests_per_minute=120).post(1)
    # 2 at once (but for a pause of 0.01 s), the third half a second after the first
    assert server.seen[1].at <= 0.01
    assert server.seen[2].at == pytest.approx(0.5)


async def test_no_turn_before_the_deadline() -> None:
    server = WithoutConnections(script(Reply(1)))
    client = client_of(server, requests_per_minute=2, timeout_s=20.0)
    assert await client.post(1) == 1
    error = await failure_of(client)
    assert now() == 0.0  # not at the deadline
    assert len(server.seen) == 1
    assert error.failure == "timeout"
    assert "2 requests a minute" in error.detail


async def test_nothing_is_sent_after_cancellation() -> None:
    server = WithoutConnections(script(Reply(1, 500)))
    client = client_of(server, max_tries=1000, max_concurrency=4, timeout_s=60.0)
    work = asyncio.create_task(together(client.post(i) for i in range(32)))
    while len(server.seen) < 12:
        await asyncio.sleep(0.001)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    arrived = len(server.seen)
    await asyncio.sleep(1000)
    assert len(server.seen) == arrived >= 12


def test_event_loops_may_follow_one_another_and_share_the_rate_limit() -> None:
    server = WithoutConnections(script(Reply(1)))
    settings: dict[str, Any] = {"url": "http://judge", "wire": "slime", "requests_per_minute": 60}
    client = HTTPClient(HTTPSpec(**settings), clock=lambda: 0.0, transport=server)
    for _ in range(3):
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(client.post(1))
    # One a second, and the clock of the limit has not moved: each loop begins at 0.
    assert moments(server) == [0.0, 1.0, 2.0]

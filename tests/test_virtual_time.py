"""The clock that jumps: order and moments are those of a real one, without its seconds."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest

from tests.virtual_time import VirtualLoop


@pytest.mark.virtual_time
async def test_an_hour_takes_no_time_and_timers_keep_their_order() -> None:
    loop = asyncio.get_running_loop()
    moments: list[tuple[str, float]] = []

    async def after(seconds: float, name: str) -> None:
        await asyncio.sleep(seconds)
        moments.append((name, loop.time()))

    began = time.process_time()
    await asyncio.gather(after(3600, "last"), after(0.5, "first"), after(60, "second"))
    assert moments == [("first", 0.5), ("second", 60.0), ("last", 3600.0)]
    assert time.process_time() - began < 30


@pytest.mark.virtual_time
async def test_deadlines_are_on_the_same_clock() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(7):
            await asyncio.sleep(8)
    assert loop.time() == 7.0
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(loop.create_future(), 3)
    assert loop.time() == 10.0


@pytest.mark.virtual_time
async def test_time_stands_still_while_a_thread_works() -> None:
    loop = asyncio.get_running_loop()
    entered = threading.Event()

    def work() -> float:
        entered.set()
        time.sleep(0.05)
        return loop.time()

    job = asyncio.create_task(asyncio.to_thread(work))
    await asyncio.to_thread(entered.wait)
    await asyncio.sleep(100)
    assert job.done()
    assert await job == 0.0
    assert loop.time() == 100.0


@pytest.mark.virtual_time
async def test_a_task_that_never_sleeps_takes_no_time() -> None:
    for _ in range(1000):
        await asyncio.sleep(0)
    assert asyncio.get_running_loop().time() == 0.0


def test_a_wait_that_never_ends_is_an_error_though_a_timer_goes_on() -> None:
    async def wait() -> None:
        never = asyncio.get_running_loop().create_future()
        while not never.done():
            await asyncio.wait([never], timeout=60)

    with pytest.raises(RuntimeError, match="has not come in 100000 s"):
        asyncio.Runner(loop_factory=VirtualLoop).run(wait())


def test_a_socket_is_refused() -> None:
    async def listen() -> None:
        await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        await asyncio.sleep(1)

    with pytest.raises(RuntimeError, match="a socket or a process"):
        asyncio.Runner(loop_factory=VirtualLoop).run(listen())


def test_tests_without_the_mark_have_a_real_clock() -> None:
    """Two ends of a pair, one of them watched: what the loop with virtual time refuses."""
    near, far = socket.socketpair()

    async def read() -> bytes:
        near.setblocking(False)
        return await asyncio.get_running_loop().sock_recv(near, 1)

    far.send(b"x")
    with near, far:
        assert asyncio.run(read()) == b"x"


async def test_this_one_has_the_clock_of_the_machine() -> None:
    loop = asyncio.get_running_loop()
    assert not isinstance(loop, VirtualLoop)
    before = time.monotonic()
    assert before <= loop.time() <= time.monotonic()

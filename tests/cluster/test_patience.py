"""A deadline that counts from the last progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from rmrl.cluster.local import LocalHost
from rmrl.cluster.patience import with_progress
from rmrl.errors import StallError

PARTS = "tests.cluster.process_parts"


async def waited(seconds: float, counts: Sequence[int], *, timeout_s: float = 0.05) -> str:
    """Await a call of `seconds` that is at `counts` each time it is looked at."""
    left = list(counts)

    async def call() -> str:
        await asyncio.sleep(seconds)
        return "done"

    async def progress() -> int:
        return left.pop(0) if left else 0

    return await with_progress(call(), timeout_s=timeout_s, progress=progress)


async def test_a_call_that_advances_may_take_many_times_its_deadline() -> None:
    assert await waited(0.5, range(1, 100)) == "done"


async def test_a_call_without_progress_ends_at_its_deadline() -> None:
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        await waited(30, [])
    assert time.monotonic() - start < 10


async def test_a_call_that_stops_in_the_middle_ends_as_well() -> None:
    with pytest.raises(TimeoutError):
        await waited(30, [1, 2, 2])


async def test_errors_of_the_call_come_through() -> None:
    async def fails() -> None:
        raise ValueError("inside")

    async def progress() -> int:
        return 0

    with pytest.raises(ValueError, match="inside"):
        await with_progress(fails(), timeout_s=5, progress=progress)


@pytest.mark.slow
async def test_a_process_without_ray_reports_how_far_it_is() -> None:
    process = await LocalHost({}).spawn(f"{PARTS}:Steps", {}, name="steps")
    try:
        # one item per 0.5 s, for 6 s
        assert await process.call("work", 12, 0.5, timeout_s=3.0) == 12
        assert await process.call("work", 2, 0.1, timeout_s=30) == 2
        with pytest.raises(StallError, match="did not finish within 2 s"):
            await process.call("work", 1, 60.0, timeout_s=2.0)
    finally:
        await process.kill()


@pytest.mark.slow
async def test_a_call_behind_another_one_keeps_its_own_patience() -> None:
    process = await LocalHost({}).spawn(f"{PARTS}:Steps", {}, name="steps")
    try:
        # 4 s at one item per 0.5 s, then 6 s; each is behind the other's count at some time
        calls = [process.call("work", count, 0.5, timeout_s=1.5) for count in (8, 12)]
        assert await asyncio.gather(*calls) == [8, 12]
    finally:
        await process.kill()

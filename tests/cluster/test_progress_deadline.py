"""A deadline that counts from the last progress."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rmrl.cluster.progress_deadline import with_progress

pytestmark = pytest.mark.virtual_time


async def waited(seconds: float, counts: Sequence[int]) -> str:
    """Await a call of `seconds` with a deadline of 3 s, which is at `counts` each time it is looked
    at."""
    left = list(counts)

    async def call() -> str:
        await asyncio.sleep(seconds)
        return "done"

    async def progress() -> int:
        return left.pop(0) if left else 0

    return await with_progress(call(), timeout_s=3.0, progress=progress)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_call_that_advances_may_take_many_times_its_deadline() -> None:
    assert await waited(200, range(1, 100)) == "done"
    assert now() == 200


async def test_a_call_without_progress_ends_at_its_deadline() -> None:
    with pytest.raises(TimeoutError):
        await waited(300, [])
    assert now() == 3


async def test_a_call_that_stops_in_the_middle_ends_as_well() -> None:
    with pytest.raises(TimeoutError):
        await waited(300, [1, 2, 2])
    assert now() == 9


async def test_errors_of_the_call_come_through() -> None:
    async def fails() -> None:
        raise ValueError("inside")

    async def progress() -> int:
        return 0

    with pytest.raises(ValueError, match="inside"):
        await with_progress(fails(), timeout_s=5, progress=progress)

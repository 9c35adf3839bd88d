"""A wait is reported at regular intervals, and the reports end with it."""

from __future__ import annotations

import asyncio

from rmrl.heartbeat import heartbeat


def test_a_long_wait_is_reported_until_it_ends():
    lines: list[str] = []

    async def wait() -> int:
        async with heartbeat(lines.append, "waiting for the engines", interval_s=0.02):
            while len(lines) < 2:
                await asyncio.sleep(0.005)
        count = len(lines)
        await asyncio.sleep(0.06)
        return count

    assert asyncio.run(asyncio.wait_for(wait(), 10)) == len(lines)
    assert lines[0] == "waiting for the engines (0 s)"


def test_a_short_wait_is_not_reported():
    lines: list[str] = []

    async def wait() -> None:
        async with heartbeat(lines.append, "waiting"):
            await asyncio.sleep(0)

    asyncio.run(wait())
    assert lines == []

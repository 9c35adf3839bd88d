"""A wait is reported at regular intervals, and the reports end with it."""

from __future__ import annotations

import asyncio

import pytest

from rmrl.heartbeat import heartbeat


@pytest.mark.virtual_time
async def test_a_long_wait_is_reported_until_it_ends(caplog: pytest.LogCaptureFixture):
    async with heartbeat("waiting for the engines"):
        await asyncio.sleep(25)
    await asyncio.sleep(100)
    assert caplog.messages == [f"waiting for the engines ({seconds} s)" for seconds in (10, 20)]


def test_a_short_wait_is_not_reported(caplog: pytest.LogCaptureFixture):

    async def wait() -> None:
        async with heartbeat("waiting"):
            await asyncio.sleep(0)

    asyncio.run(wait())
    assert caplog.messages == []

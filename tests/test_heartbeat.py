"""A wait is reported at regular intervals, and the reports end with it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from rmrl.heartbeat import heartbeat


def test_a_long_wait_is_reported_until_it_ends(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    clock = iter([100.0, 103.2, 120.0])
    times = SimpleNamespace(monotonic=lambda: next(clock, 120.0))
    monkeypatch.setattr("rmrl.heartbeat.time", times)

    async def wait() -> int:
        async with heartbeat("waiting for the engines", interval_s=0.02):
            while len(caplog.messages) < 2:
                await asyncio.sleep(0.005)
        count = len(caplog.messages)
        await asyncio.sleep(0.06)
        return count

    assert asyncio.run(asyncio.wait_for(wait(), 60)) == len(caplog.messages)
    assert caplog.messages[:2] == [f"waiting for the engines ({seconds} s)" for seconds in (3, 20)]


def test_a_short_wait_is_not_reported(caplog: pytest.LogCaptureFixture):

    async def wait() -> None:
        async with heartbeat("waiting"):
            await asyncio.sleep(0)

    asyncio.run(wait())
    assert caplog.messages == []

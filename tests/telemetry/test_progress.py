"""Progress inside a step: lines in a log, a bar on a terminal alone."""

from __future__ import annotations

import asyncio

import pytest

from rmrl.telemetry.progress import counting, watching


def test_a_log_gets_a_line_now_and_then(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    moments = iter([100.0, 159.0, 160.0, 219.0, 221.0, 300.0])
    with counting(
        "score", 10, unit="verdicts", log_every_s=60.0, clock=lambda: next(moments)
    ) as update:
        for done in (2, 4, 5, 7, 10):  # done: the step's own line says the rest
            update(done)
    assert caplog.messages == [
        "score: 4 of 10 verdicts after 60 s",
        "score: 7 of 10 verdicts after 121 s",
    ]
    assert capsys.readouterr().err == ""


def test_without_an_interval_a_log_gets_nothing(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with counting("generate", 10) as update:
        update(4)
    assert caplog.messages == []
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with counting("score", 10, unit="verdicts", log_every_s=0.0) as update:
        update(4)
    assert caplog.messages == []
    assert "score:" in capsys.readouterr().err


@pytest.mark.virtual_time
async def test_what_is_watched_is_looked_at_until_the_block_ends() -> None:
    seen: list[int] = []
    done = 3
    async with watching(lambda: done, seen.append, every_s=10.0):
        await asyncio.sleep(25)
        done = 7
        await asyncio.sleep(10)
    await asyncio.sleep(100)
    assert seen == [3, 3, 7]


async def test_an_error_of_the_block_is_the_error() -> None:
    async def fails() -> None:
        async with watching(lambda: 0, lambda _: None, every_s=0.001):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fails()

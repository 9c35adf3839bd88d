"""The barrier around a shared engine: one call for all, and nobody waits for somebody who is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmrl.errors import InfrastructureError
from rmrl.rewards.engines.merge import MergedCalls

DEADLINE_S = 5.0


class Recorder:
    """Doubles every request; `fails` makes each call raise."""

    def __init__(self, *, fails: Exception | None = None, lose: int = 0) -> None:
        self.sent: list[tuple[str, list[Any]]] = []
        self.fails, self.lose = fails, lose

    async def __call__(self, method: str, requests: list[Any]) -> list[Any]:
        self.sent.append((method, requests))
        await asyncio.sleep(0)
        if self.fails:
            raise self.fails
        return [2 * r for r in requests][: len(requests) - self.lose]


async def participant(calls: MergedCalls, *rounds: list[int], method: str = "generate", fail_before: int | None = None) -> list[list[int]]:
    out = []
    try:
        for number, requests in enumerate(rounds):
            if number == fail_before:
                raise ValueError("on its own")
            out.append(await calls.submit(method, requests))
    finally:
        calls.leave()
    return out


async def together(*work: Any) -> list[Any]:
    return await asyncio.wait_for(asyncio.gather(*work, return_exceptions=True), DEADLINE_S)


async def test_requests_go_out_as_one_call_and_come_back_in_order():
    run = Recorder()
    calls = MergedCalls(run, participants=3)
    found = await together(participant(calls, [1, 2]), participant(calls, [3]), participant(calls, [4, 5]))
    assert found == [[[2, 4]], [[6]], [[8, 10]]]
    assert run.sent == [("generate", [1, 2, 3, 4, 5])]


async def test_one_call_per_method():
    run = Recorder()
    calls = MergedCalls(run, participants=3)
    await together(participant(calls, [1]), participant(calls, [2], method="classify"), participant(calls, [3]))
    assert sorted(run.sent) == [("classify", [2]), ("generate", [1, 3])]


async def test_somebody_who_asks_nothing_holds_nobody_up():
    run = Recorder()
    calls = MergedCalls(run, participants=2)
    assert await together(participant(calls, []), participant(calls, [1])) == [[[]], [[2]]]
    assert run.sent == [("generate", [1])]


async def test_somebody_who_fails_before_asking_holds_nobody_up():
    calls = MergedCalls(Recorder(), participants=3)
    failed, *others = await together(participant(calls, [9], fail_before=0), participant(calls, [1]), participant(calls, [2]))
    assert isinstance(failed, ValueError)
    assert others == [[[2]], [[4]]]


async def test_different_numbers_of_rounds():
    run = Recorder()
    calls = MergedCalls(run, participants=2)
    assert await together(participant(calls, [1], [2], [3]), participant(calls, [10])) == [[[2], [4], [6]], [[20]]]
    assert [requests for _, requests in run.sent] == [[1, 10], [2], [3]]


async def test_an_error_of_the_engine_reaches_everybody():
    calls = MergedCalls(Recorder(fails=InfrastructureError("gone")), participants=2)
    found = await together(participant(calls, [1]), participant(calls, [2]))
    assert [str(error) for error in found] == ["gone", "gone"]


async def test_lost_results_are_an_error_with_both_numbers():
    calls = MergedCalls(Recorder(lose=1), participants=2)
    found = await together(participant(calls, [1]), participant(calls, [2]))
    assert [str(error) for error in found] == ["the engine returned 1 results of generate for 2 requests"] * 2


async def test_somebody_cancelled_while_waiting_is_not_asked_for():
    run = Recorder()
    calls = MergedCalls(run, participants=3)
    waiting = asyncio.create_task(participant(calls, [9]))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert run.sent == []
    assert await together(participant(calls, [1]), participant(calls, [2])) == [[[2]], [[4]]]
    assert run.sent == [("generate", [1, 2])]


async def test_cancelling_ends_the_call_and_the_waiting():
    ended = asyncio.Event()

    async def never(method: str, requests: list[Any]) -> list[Any]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return []

    calls = MergedCalls(never, participants=1)
    waiting = asyncio.create_task(participant(calls, [1]))
    for _ in range(3):
        await asyncio.sleep(0)
    calls.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, DEADLINE_S)
    assert ended.is_set()

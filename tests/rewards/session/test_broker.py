"""The broker with a residency that only writes down what happened."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rmrl.errors import EngineLoadError, InfrastructureError, StallError
from rmrl.rewards.session.broker import Broker, Hold, _Ask, call_deadlines

pytestmark = pytest.mark.virtual_time


class LoggedEngine:
    """Echoes its requests with its name in front; `fails` is raised by the first call."""

    def __init__(
        self, key: str, log: list[str], fails: Exception | None = None, short: bool = False
    ) -> None:
        self.key, self.log, self.fails, self.short = key, log, fails, short

    async def call(self, method: str, requests: list[Any], *, timeout_s: float) -> list[Any]:
        self.log.append(f"{self.key}.{method}({','.join(map(str, requests))}) <{timeout_s:g}s")
        await asyncio.sleep(0.001)
        if self.fails is not None:
            raise self.fails
        return [f"{self.key}:{r}" for r in requests][: len(requests) - self.short]


class LoggedResidency:
    """Implements what the broker uses of `Residency`. `turns`: key -> turn; all share one
    otherwise."""

    def __init__(self, **changes: Any) -> None:
        self.log: list[str] = []
        self.turns: dict[Hashable, str] = changes.get("turns", {})
        self.fails: dict[Hashable, Exception] = changes.get("fails", {})
        self.unloadable: Hashable = changes.get("unloadable")
        self.short = changes.get("short", False)
        self.awake: set[Hashable] = set(changes.get("awake", ()))
        self.stays = changes.get("stays", False)

    def turn_of(self, key: Hashable) -> Hashable:
        return self.turns.get(key, "here")

    def order(self, keys: Sequence[Any]) -> list[Any]:
        return sorted(keys)

    def is_awake(self, key: Hashable) -> bool:
        return key in self.awake

    def stays_awake(self, key: Hashable) -> bool:
        del key
        return self.stays

    def needs_room(self, key: Hashable) -> bool:
        return bool(self.awake) and key not in self.awake

    def read_ahead(self, key: Hashable) -> None:
        self.log.append(f"read ahead {key}")

    @asynccontextmanager
    async def use(self, key: Any) -> AsyncIterator[LoggedEngine]:
        if key == self.unloadable:
            raise EngineLoadError(f"{key} cannot be loaded")
        self.log.append(f"wake {key}")
        try:
            yield LoggedEngine(key, self.log, self.fails.get(key), self.short)
        finally:
            self.log.append(f"put away {key}")


def make(**changes: Any) -> tuple[Broker, LoggedResidency]:
    residency = LoggedResidency(**changes)
    return Broker(residency, deadline_s=lambda _: 5.0), residency  # type: ignore[arg-type]


async def judge(
    broker: Broker, key: str, *rounds: list[str], method: str = "ask", work: float = 0.0
) -> list[list[str]]:
    """A reward that asks once per round, after `work` seconds of its own."""
    answers = []
    with broker.participant():
        for requests in rounds:
            await asyncio.sleep(work)
            answers.append(await broker.ask(key, method, requests))
    return answers


async def test_two_rewards_of_one_engine_share_a_call_and_get_their_own_results_in_order() -> None:
    broker, residency = make()
    fast, slow = await asyncio.gather(
        judge(broker, "A", ["1", "2"]), judge(broker, "A", ["3"], work=0.02)
    )
    assert fast == [["A:1", "A:2"]]
    assert slow == [["A:3"]]
    await broker.idle()
    assert residency.log == ["wake A", "A.ask(1,2,3) <5s", "put away A"]


async def test_engines_take_turns_and_what_is_asked_next_waits_for_its_engine() -> None:
    broker, residency = make()
    await asyncio.gather(
        judge(broker, "A", ["1"], ["2"]), judge(broker, "B", ["3"]), judge(broker, "A", ["4"])
    )
    await broker.idle()
    assert residency.log == [
        "wake A", "read ahead B", "A.ask(1,4) <5s", "A.ask(2) <5s", "put away A",
        "wake B", "B.ask(3) <5s", "put away B",
    ]  # fmt: skip


async def test_a_reward_with_two_engines_swaps_once() -> None:
    """A critique: the writer for all, then the scorer for all."""
    broker, residency = make()

    async def critique(request: str) -> list[str]:
        with broker.participant():
            written = await broker.ask("writer", "generate", [request])
            return await broker.ask("scorer", "classify", written)

    assert await asyncio.gather(critique("1"), critique("2")) == [
        ["scorer:writer:1"],
        ["scorer:writer:2"],
    ]
    assert [line for line in residency.log if "wake" in line] == ["wake writer", "wake scorer"]


async def test_methods_of_one_engine_go_out_one_after_the_other() -> None:
    broker, residency = make()
    await asyncio.gather(
        judge(broker, "A", ["1"], method="generate"), judge(broker, "A", ["2"], method="classify")
    )
    await broker.idle()
    assert residency.log == ["wake A", "A.generate(1) <5s", "A.classify(2) <5s", "put away A"]


async def test_engines_of_their_own_devices_work_side_by_side() -> None:
    broker, residency = make(turns={"A": "gpu 0", "B": "gpu 1"})
    await asyncio.gather(judge(broker, "A", ["1"]), judge(broker, "B", ["2"]))
    assert residency.log[:2] == ["wake A", "wake B"] or residency.log.index(
        "wake B"
    ) < residency.log.index("put away A")


async def test_a_reward_that_waits_for_another_does_not_hold_up_the_engine() -> None:
    broker, residency = make()
    gate = asyncio.Event()

    async def gated() -> list[str]:
        with broker.participant():
            with broker.waiting():
                await gate.wait()
            return await broker.ask("B", "ask", ["2"])

    async def opener() -> list[list[str]]:
        answers = await judge(broker, "A", ["1"])
        gate.set()
        return answers

    assert await asyncio.gather(gated(), opener()) == [["B:2"], [["A:1"]]]
    assert [line for line in residency.log if "wake" in line] == ["wake A", "wake B"]


async def test_a_reward_that_has_its_answer_counts_as_working_until_it_waits_again() -> None:
    broker, residency = make()
    await asyncio.gather(
        judge(broker, "A", ["1"], ["2"], work=0.02), judge(broker, "B", ["3"], work=0.02)
    )
    await broker.idle()
    assert residency.log == [
        "wake A", "read ahead B", "A.ask(1) <5s", "A.ask(2) <5s", "put away A",
        "wake B", "B.ask(3) <5s", "put away B",
    ]  # fmt: skip


async def test_a_reward_that_waited_for_another_counts_as_working_again() -> None:
    broker, residency = make()

    async def gated() -> list[str]:
        with broker.participant():
            with broker.waiting():
                await asyncio.sleep(0)
            await asyncio.sleep(0.02)
            return await broker.ask("A", "ask", ["2"])

    await asyncio.gather(judge(broker, "A", ["1"]), gated())
    await broker.idle()
    assert residency.log == ["wake A", "A.ask(1,2) <5s", "put away A"]


async def test_a_reward_that_gave_up_a_request_counts_as_working_again() -> None:
    broker, residency = make()

    async def impatient() -> list[str]:
        with broker.participant():
            request = asyncio.create_task(broker.ask("A", "ask", ["dropped"]))
            await asyncio.sleep(0)
            request.cancel()
            await asyncio.sleep(0.02)
            return await broker.ask("A", "ask", ["2"])

    await asyncio.gather(impatient(), judge(broker, "A", ["1"]))
    await broker.idle()
    assert residency.log == ["wake A", "A.ask(1,2) <5s", "put away A"]


async def test_a_reward_cancelled_when_its_answer_is_there_counts_as_working_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, _ = make()
    settle = _Ask.settle

    def settle_and_cancel(self: _Ask, results: Any = None, error: Any = None) -> None:
        settle(self, results, error)
        if self.requests == ["1"]:
            task.cancel()

    async def reward() -> list[Any]:
        with broker.participant():
            with contextlib.suppress(asyncio.CancelledError):
                await broker.ask("a", "ask", ["1"])
            return await broker.ask("a", "ask", ["2"])

    monkeypatch.setattr(_Ask, "settle", settle_and_cancel)
    task = asyncio.create_task(reward())
    assert await task == ["a:2"]


async def test_an_engine_that_fails_fails_those_who_asked_it_and_nobody_else() -> None:
    broker, residency = make(fails={"A": StallError("A hangs")})
    results = await asyncio.gather(
        judge(broker, "A", ["1"]),
        judge(broker, "A", ["2"]),
        judge(broker, "B", ["3"]),
        return_exceptions=True,
    )
    assert [type(r) for r in results] == [StallError, StallError, list]
    assert residency.log.count("put away A") == 1


async def test_an_engine_that_cannot_be_loaded_is_told_to_those_who_asked_it() -> None:
    broker, _ = make(unloadable="A")
    results = await asyncio.gather(
        judge(broker, "A", ["1"]), judge(broker, "B", ["2"]), return_exceptions=True
    )
    assert isinstance(results[0], EngineLoadError)
    assert results[1] == [["B:2"]]


async def test_results_are_counted() -> None:
    broker, _ = make(short=True)
    with pytest.raises(InfrastructureError, match="returned 1 results of ask for 2 requests"):
        await judge(broker, "A", ["1", "2"])


async def test_no_request_needs_no_engine() -> None:
    broker, residency = make()
    assert await judge(broker, "A", []) == [[]]
    assert residency.log == []


async def test_a_cancelled_reward_is_not_asked_for_and_does_not_hold_up_the_others() -> None:
    broker, residency = make()
    blocked = asyncio.Event()

    async def busy() -> None:
        with broker.participant():
            await blocked.wait()

    holding = asyncio.create_task(busy())
    leaving, staying = (
        asyncio.create_task(judge(broker, "A", ["1"])),
        asyncio.create_task(judge(broker, "A", ["2"])),
    )
    await asyncio.sleep(0.01)
    leaving.cancel()
    await asyncio.sleep(0.01)
    blocked.set()
    assert await staying == [["A:2"]]
    await holding
    assert "A.ask(2) <5s" in residency.log


async def test_closing_cancels_whoever_waits() -> None:
    broker, _ = make()
    blocked = asyncio.Event()

    async def busy() -> None:
        with broker.participant():
            await blocked.wait()

    holding, waiting = asyncio.create_task(busy()), asyncio.create_task(judge(broker, "A", ["1"]))
    await asyncio.sleep(0.01)
    await broker.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    holding.cancel()


async def test_a_broker_serves_again_after_it_was_idle() -> None:
    broker, residency = make()
    for request in ("1", "2"):
        assert await judge(broker, "A", [request]) == [[f"A:{request}"]]
        await asyncio.sleep(0.005)
    assert residency.log.count("wake A") == 2


def test_the_longest_deadline_of_those_who_share_an_engine_counts() -> None:
    assert call_deadlines([("A", 5.0), ("B", 1.0), ("A", 3.0)]) == {"A": 5.0, "B": 1.0}


async def named(
    broker: Broker, key: str, *rounds: list[str], work: float = 0.0, engines: Sequence[str] = ()
) -> list[list[str]]:
    """`judge`, of a reward that names its engines."""
    answers = []
    with broker.participant(engines or [key]):
        for requests in rounds:
            await asyncio.sleep(work)
            answers.append(await broker.ask(key, "ask", requests))
    return answers


async def test_an_engine_does_not_wait_until_rewards_of_other_engines_are_rendered() -> None:
    broker, residency = make()
    judging = asyncio.create_task(named(broker, "judge", ["1"], work=0.05))
    assert await named(broker, "scalar", ["2"]) == [["scalar:2"]]
    assert not judging.done()
    assert residency.log == ["wake scalar", "read ahead judge", "scalar.ask(2) <5s"]
    assert await judging == [["judge:1"]]


async def test_two_rewards_that_name_one_engine_still_share_a_call() -> None:
    broker, residency = make()
    await asyncio.gather(named(broker, "A", ["1"]), named(broker, "A", ["2"], work=0.02))
    await broker.idle()
    assert residency.log == ["wake A", "A.ask(1,2) <5s", "put away A"]


async def test_a_reward_of_a_server_never_holds_up_an_engine() -> None:
    broker, _ = make()

    async def remote() -> None:
        with broker.participant([]):
            await asyncio.sleep(0.05)

    working = asyncio.create_task(remote())
    await asyncio.sleep(0)
    assert await named(broker, "A", ["1"]) == [["A:1"]]
    assert not working.done()
    await working


async def test_parts_of_a_batch_are_served_while_the_next_is_rendered() -> None:
    broker, residency = make()
    with broker.participant(["A"]):
        with broker.preparing("A"):
            first = asyncio.create_task(broker.ask("A", "ask", ["1"]))
            assert await first == ["A:1"]
            # It stays awake for the parts to come.
            assert "put away A" not in residency.log
            second = asyncio.create_task(broker.ask("A", "ask", ["2"]))
            await asyncio.sleep(0)
        assert await second == ["A:2"]
    await broker.idle()
    assert residency.log == ["wake A", "A.ask(1) <5s", "A.ask(2) <5s", "put away A"]


@pytest.mark.parametrize("stays", [True, False])
async def test_between_parts_an_engine_that_fits_beside_it_goes_on(stays: bool) -> None:
    """Without room for both (`stays` false) they would only swap."""
    broker, residency = make(stays=stays)
    with broker.participant(["judge"]), broker.preparing("judge"):
        await broker.ask("judge", "ask", ["1"])
        scalar = asyncio.create_task(named(broker, "scalar", ["2"]))
        await asyncio.wait([scalar], timeout=0.05)
        assert scalar.done() == stays
        assert await broker.ask("judge", "ask", ["3"]) == ["judge:3"]
    assert await scalar == [["scalar:2"]]
    await broker.idle()
    wakes = ["wake judge", "wake scalar", "wake judge"] if stays else ["wake judge", "wake scalar"]
    assert [line for line in residency.log if "wake" in line] == wakes


async def test_an_engine_is_put_away_while_requests_for_another_one_are_rendered() -> None:
    """A critique that renders for its scorer has no more requests for its writer."""
    broker, residency = make()
    with broker.participant(["writer", "scorer"]):
        await broker.ask("writer", "ask", ["1"])
        with broker.preparing("scorer"):
            await asyncio.sleep(0.01)
            assert residency.log[-1] == "put away writer"
        await broker.ask("scorer", "ask", ["2"])


async def test_an_awake_engine_that_is_about_to_be_asked_comes_before_one_that_needs_its_room() -> (
    None
):
    broker, residency = make(awake={"judge"})
    # "judge" sorts before "scalar", as the awake engine does in the real order.
    await asyncio.gather(named(broker, "judge", ["1"], work=0.02), named(broker, "scalar", ["2"]))
    await broker.idle()
    assert [line for line in residency.log if "wake" in line] == ["wake judge", "wake scalar"]


async def test_a_request_that_was_given_up_wakes_no_engine() -> None:
    broker, residency = make()

    async def busy() -> None:
        with broker.participant(["A"]):
            await asyncio.sleep(0.02)

    working = asyncio.create_task(busy())
    leaving = asyncio.create_task(named(broker, "A", ["1"]))
    await asyncio.sleep(0.005)
    leaving.cancel()
    await working
    await broker.idle()
    assert residency.log == []


async def test_held_requests_wait_and_keep_nobody_waiting() -> None:
    broker, residency = make()
    hold = Hold()

    async def held() -> list[str]:
        with broker.participant(["A"], hold=hold):
            return await broker.ask("A", "ask", ["held"])

    waiting = asyncio.create_task(held())
    await asyncio.sleep(0)
    assert await judge(broker, "A", ["now"]) == [["A:now"]]
    await broker.idle()
    assert not waiting.done()
    assert residency.log == ["wake A", "A.ask(now) <5s", "put away A"]
    broker.release(hold)
    assert await waiting == ["A:held"]
    await broker.idle()
    assert residency.log[3:] == ["wake A", "A.ask(held) <5s", "put away A"]


async def test_requests_after_the_release_join_those_before_it() -> None:
    broker, residency = make()
    hold = Hold()

    async def held(request: str, work: float) -> list[str]:
        with broker.participant(["A"], hold=hold):
            await asyncio.sleep(work)
            return await broker.ask("A", "ask", [request])

    asking = [asyncio.create_task(held("1", 0.0)), asyncio.create_task(held("2", 0.05))]
    await asyncio.sleep(0.01)
    broker.release(hold)
    assert await asyncio.gather(*asking) == [["A:1"], ["A:2"]]
    await broker.idle()
    assert residency.log == ["wake A", "A.ask(1,2) <5s", "put away A"]

"""Engines shared by several owners of requests: nobody waits for others without end, a share for
everybody, and one's failure is not another's."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from rmrl.errors import ConfigError, InfrastructureError
from rmrl.rewards.session.broker import Broker, Hold
from rmrl.rewards.session.sharing import Client, Owner, Sharing, next_share
from tests.rewards.session import test_broker
from tests.rewards.session.test_broker import LoggedResidency, make

pytestmark = pytest.mark.virtual_time


async def ask(
    broker: Broker, key: str, request: str, *, owner: Owner | None = None, work: float = 0.0
) -> list[str]:
    """A reward that renders for `work` seconds and then sends one request."""
    with broker.participant([key], owner=owner or Owner()):
        await asyncio.sleep(work)
        return await broker.ask(key, "ask", [request])


def calls(residency: LoggedResidency) -> list[str]:
    return [line.split(" ")[0] for line in residency.log if ".ask(" in line]


async def test_a_request_is_served_while_others_arrive_all_the_time() -> None:
    """There is always a participant that renders; without owners the engine waits for the last."""
    broker, residency = make()
    arriving = True

    async def others() -> None:
        tasks: list[asyncio.Task[list[str]]] = []
        for number in itertools.count():
            if not arriving:
                break
            tasks.append(asyncio.create_task(ask(broker, "A", f"o{number}", work=0.03)))
            await asyncio.sleep(0.005)
        await asyncio.gather(*tasks)

    stream = asyncio.create_task(others())
    await asyncio.sleep(0.05)
    async with asyncio.timeout(0.5):
        assert await ask(broker, "A", "mine") == ["A:mine"]
    arriving = False
    await stream
    assert len(calls(residency)) > 1


async def test_what_a_client_asks_of_another_engine_waits_only_its_turn() -> None:
    """Engine A, which is awake, has requests without end; B needs its memory."""
    broker, residency = make(awake={"A"})
    broker.sharing.turn_s = 0.1
    broker.sharing.check_s = 0.02
    ended = asyncio.Event()

    async def one_after_another() -> None:
        for number in itertools.count():
            if ended.is_set():
                break
            await ask(broker, "A", f"a{number}")

    flood = [asyncio.create_task(one_after_another()) for _ in range(3)]
    loop = asyncio.get_running_loop()
    begin = loop.time()
    async with asyncio.timeout(2.0):
        assert await ask(broker, "B", "b") == ["B:b"]
    assert loop.time() - begin >= 0.1
    ended.set()
    await asyncio.gather(*flood)
    before_b = calls(residency).index("B.ask(b)")
    # A went on being served until B's requests had waited for turn_s.
    assert before_b > 3


async def test_engines_that_fit_beside_each_other_alternate() -> None:
    broker, residency = make(awake={"A", "B"})
    ended = asyncio.Event()

    async def flood(key: str) -> None:
        while not ended.is_set():
            await ask(broker, key, "r")

    tasks = [asyncio.create_task(flood(key)) for key in "AABB"]
    await asyncio.sleep(0.1)
    ended.set()
    await asyncio.gather(*tasks)
    served = [line[0] for line in calls(residency)]
    assert abs(served.count("A") - served.count("B")) <= 3


async def test_an_owners_requests_still_wait_for_that_owners_other_rewards() -> None:
    """Two judges of one request on one checkpoint fill one call."""
    broker, residency = make()
    owner = Owner()
    await asyncio.gather(
        ask(broker, "A", "1", owner=owner), ask(broker, "A", "2", owner=owner, work=0.02)
    )
    assert calls(residency) == ["A.ask(1,2)"]


@pytest.mark.parametrize(
    "error", [InfrastructureError("died"), ConfigError("refused"), ValueError("a bad pattern")]
)
async def test_a_call_that_one_request_ends_is_repeated_for_each_owner_alone(
    error: Exception,
) -> None:
    broker, residency = make()
    original = test_broker.LoggedEngine.call

    async def call(
        self: test_broker.LoggedEngine, method: str, requests: list[str], *, timeout_s: float
    ) -> list[str]:
        answer = await original(self, method, requests, timeout_s=timeout_s)
        if "poison" in requests:
            raise error
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_broker.LoggedEngine, "call", call)
        good, bad, other = await asyncio.gather(
            ask(broker, "A", "good"),
            ask(broker, "A", "poison"),
            ask(broker, "A", "other"),
            return_exceptions=True,
        )
    assert (good, other) == (["A:good"], ["A:other"])
    assert bad is error
    assert calls(residency)[0] == "A.ask(good,poison,other)"


async def test_a_cancelled_request_takes_nobody_with_it_and_is_not_sent() -> None:
    broker, residency = make()
    with broker.participant(["A"], owner=Owner(), hold=Hold()):
        cancelled = asyncio.create_task(broker.ask("A", "ask", ["cancelled"]))
        await asyncio.sleep(0)
        assert [ask.requests for ask in broker._pending["A"]] == [["cancelled"]]
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
    assert broker._pending["A"] == []
    assert await ask(broker, "A", "last") == ["A:last"]
    assert calls(residency) == ["A.ask(last)"]


class Asked:
    """Requests of one owner."""

    def __init__(self, owner: Owner | None, count: int, name: str = "") -> None:
        self.owner = owner
        self.requests = [name] * count
        self.since = 0.0
        self.alone = False


def names(asks: Sequence[Asked]) -> list[str]:
    return [ask.requests[0] for ask in asks]


def test_a_small_client_is_in_the_next_call_though_a_large_one_came_first() -> None:
    large, small = Client(), Client()
    parts = [Asked(Owner(large), 256, f"large {i}") for i in range(4)]
    pending = [*parts, Asked(Owner(small), 2, "small")]
    sharing = Sharing(call_requests=256)
    first = next_share(pending, sharing)
    assert names(first) == ["large 0"]  # 256 requests: the call is full
    left = [ask for ask in pending if ask not in first]
    # the client that was not served yet comes first, then the rest fills the call
    assert names(next_share(left, sharing)) == ["small", "large 1"]


def test_requests_without_an_owner_go_out_together() -> None:
    asks = [Asked(None, 400, "a"), Asked(None, 400, "b")]
    assert next_share(asks, Sharing()) == asks


def test_what_is_repeated_goes_out_alone() -> None:
    asks = [Asked(Owner(), 1, "a"), Asked(Owner(), 1, "b")]
    asks[1].alone = True
    assert next_share(asks, Sharing()) == [asks[1]]

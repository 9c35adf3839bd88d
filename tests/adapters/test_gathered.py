"""Single responses are gathered into batches, and engines rest when none come."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from rmrl.adapters import gathered
from rmrl.adapters.gathered import Gathered, Scored
from rmrl.errors import ConfigError, DataError, EngineLostError, InfrastructureError


class Rewards:
    """Scores a response with its length; notes batches and rests."""

    def __init__(self) -> None:
        self.components = (SimpleNamespace(name="length"),)
        self.batches: list[int] = []
        self.rested = threading.Event()
        self.started = threading.Event()
        self.may_end = threading.Event()
        self.may_end.set()

    def score(
        self, rows: Sequence[dict[str, Any]], *, within_budget: bool = True
    ) -> list[dict[str, Any]]:
        del within_budget
        self.batches.append(len(rows))
        if any(row["response"] is None for row in rows):
            raise DataError("a response is no text")
        self.started.set()
        assert self.may_end.wait(60)
        if any(row["response"] == "kill" for row in rows):
            raise EngineLostError("the engine died")
        table: list[dict[str, Any]] = []
        for row in rows:
            length = float(len(row["response"]))
            table.append({**row, "reward": length, "score_length": length, "status_length": "ok"})
        return table

    def rest(self) -> None:
        self.rested.set()


@pytest.fixture
def rewards(monkeypatch: pytest.MonkeyPatch) -> Rewards:
    """What scores, for batches that end almost at once."""
    monkeypatch.setattr(gathered, "WAIT_S", 0.05)
    monkeypatch.setattr(gathered, "REST_AFTER_S", 0.3)
    return Rewards()


@pytest.fixture
def gather(rewards: Rewards) -> Gathered:
    scorer: Any = rewards
    return Gathered(scorer)


@pytest.fixture
def long_waits(monkeypatch: pytest.MonkeyPatch, rewards: Rewards) -> Callable[[Gathered], None]:
    """Responses that come within a minute are close together. Call it with who gathers, and that
    minute is over."""
    for name in ("WAIT_S", "OLDEST_S", "REST_AFTER_S"):
        monkeypatch.setattr(gathered, name, 60.0)

    def over(gather: Gathered) -> None:
        monkeypatch.setattr(gathered, "WAIT_S", 0.0)
        with gather._changed:
            gather._changed.notify_all()

    return over


def test_responses_that_come_close_together_are_one_batch(
    rewards: Rewards, gather: Gathered, long_waits: Callable[[Gathered], None]
) -> None:
    futures = [gather.submit({"response": "x" * i}) for i in range(10)]
    assert rewards.batches == []
    long_waits(gather)
    assert [future.result(60).reward for future in futures] == [float(i) for i in range(10)]
    assert rewards.batches == [10]
    assert not rewards.rested.is_set()


def test_engines_rest_when_nothing_comes_and_work_again_after_it(
    rewards: Rewards, gather: Gathered
) -> None:
    assert gather.score({"response": "four"}).numbers() == {"length": 4.0}
    assert rewards.rested.wait(60)
    assert gather._thread is None
    assert gather.score({"response": "no"}).statuses() == {"length": "ok"}
    assert rewards.batches == [1, 1]


def test_an_error_reaches_every_caller_of_its_batch_and_no_other(
    gather: Gathered, long_waits: Callable[[Gathered], None]
) -> None:
    futures = [gather.submit({"response": text}) for text in ("x", "kill")]
    long_waits(gather)
    for future in futures:
        with pytest.raises(EngineLostError, match="the engine died"):
            future.result(60)
    assert gather.score({"response": "four"}).reward == 4.0


def test_a_response_that_is_cancelled_leaves_the_others_their_scores(
    rewards: Rewards, gather: Gathered, long_waits: Callable[[Gathered], None]
) -> None:
    waiting = gather.submit({"response": "waits"})
    assert waiting.cancel()
    four = gather.submit({"response": "four"})
    long_waits(gather)
    assert four.result(60).reward == 4.0
    assert rewards.batches == [1]
    rewards.started.clear()
    rewards.may_end.clear()
    scoring = gather.submit({"response": "x"})
    assert rewards.started.wait(60)
    # What asyncio does with the future of a task that is cancelled.
    assert not scoring.cancel()
    rewards.may_end.set()
    assert scoring.result(60).reward == 1.0
    assert gather.submit({"response": "four"}).result(60).reward == 4.0


def test_a_thread_that_ended_is_replaced(gather: Gathered) -> None:
    ended = threading.Thread(target=time.monotonic)
    ended.start()
    ended.join()
    gather._thread = ended
    assert gather.submit({"response": "four"}).result(60).reward == 4.0


async def test_nobody_waits_for_a_thread_that_died(
    gather: Gathered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathered, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(gather, "_serve", lambda: None)
    errors: list[BaseException] = []

    def score() -> None:
        try:
            gather.score({"response": "x"})
        except InfrastructureError as error:
            errors.append(error)

    caller = threading.Thread(target=score, daemon=True)
    caller.start()
    caller.join(60)
    assert "the thread that scores responses ended" in str(errors[0])
    with pytest.raises(InfrastructureError):
        await asyncio.wait_for(gather.score_async({"response": "x"}), 60)


async def test_a_long_batch_is_waited_for(
    rewards: Rewards, gather: Gathered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathered, "LOOK_EVERY_S", 0.02)
    look = gather._check_thread
    looks: list[bool] = []

    def ends_at_the_third_look(future: Future[Scored]) -> None:
        look(future)
        looks.append(future.done())
        if len(looks) == 3:
            rewards.may_end.set()

    monkeypatch.setattr(gather, "_check_thread", ends_at_the_third_look)
    rewards.may_end.clear()
    assert gather.score({"response": "four"}).reward == 4.0
    assert looks[:3] == [False] * 3
    looks.clear()
    rewards.may_end.clear()
    assert (await gather.score_async({"response": "four"})).reward == 4.0
    assert looks[:3] == [False] * 3


@pytest.mark.usefixtures("long_waits")
def test_a_batch_does_not_wait_for_a_stream_of_responses_to_end(
    gather: Gathered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathered, "OLDEST_S", 0.4)
    first = gather.submit({"response": "first"})
    deadline = time.monotonic() + 50
    while not first.done() and time.monotonic() < deadline:
        gather.submit({"response": "x"})
        time.sleep(0.02)
    assert first.done()


def test_a_batch_has_a_greatest_size(
    rewards: Rewards,
    gather: Gathered,
    monkeypatch: pytest.MonkeyPatch,
    long_waits: Callable[[Gathered], None],
) -> None:
    monkeypatch.setattr(gathered, "MOST_ROWS", 4)
    futures = [gather.submit({"response": "x" * i}) for i in range(10)]
    assert [future.result(60).reward for future in futures[:8]] == [float(i) for i in range(8)]
    long_waits(gather)
    assert [future.result(60).reward for future in futures[8:]] == [8.0, 9.0]
    assert rewards.batches == [4, 4, 2]


def test_a_response_that_cannot_be_read_is_an_error_of_its_own(
    rewards: Rewards, gather: Gathered, long_waits: Callable[[Gathered], None]
) -> None:
    texts = ["a", "bb", None, "dddd", "eeeee"]
    futures = [gather.submit({"response": text}) for text in texts]
    long_waits(gather)
    with pytest.raises(DataError, match="a response is no text"):
        futures.pop(2).result(60)
    assert [future.result(60).reward for future in futures] == [1.0, 2.0, 4.0, 5.0]
    # all; [a bb], [- dddd eeeee]; [-], [dddd eeeee]
    assert rewards.batches == [5, 2, 3, 1, 2]


def test_a_number_is_typed_or_left_out() -> None:
    assert gathered.number_of(None, "here") is None
    assert gathered.number_of("", "here") is None
    assert gathered.number_of("-0.5", "here") == -0.5
    with pytest.raises(ConfigError, match="here='much'; need a number"):
        gathered.number_of("much", "here")

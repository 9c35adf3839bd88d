"""Requests are dealt by tokens, results stand in order, and one loss is the loss of all."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from rmrl.errors import EngineLostError, InfrastructureError
from rmrl.inference.reward_engine_base import EmbedRequest, GenerateRequest, PoolingRequest
from rmrl.rewards.residency.replicas import (
    Replicas,
    deal,
    deal_bundles,
    request_cost,
    spawn_all,
)
from rmrl.types import Sampling
from tests.patience import PATIENCE_S
from tests.support.fake_processes import FakeHost, FakeProcess


class Echo:
    """Answers each request with its own token count; remembers what it got."""

    def __init__(self, drop: int = 0) -> None:
        self.got: list[int] = []
        self.state, self._drop = "cold", drop

    def classify(self, requests: Sequence[PoolingRequest]) -> list[int]:
        self.got = [len(r.token_ids) for r in requests]
        return self.got[: len(requests) - self._drop]

    def sleep(self, level: int = 1) -> None:
        self.state = f"asleep {level}"

    def resident_bytes(self) -> int:
        return 7

    def ping(self) -> str:
        return self.state


def replicas(*engines: Echo, deaths: dict[int, int] | None = None) -> Replicas:
    return Replicas(
        [FakeProcess(e, f"r{i}", dies_on=(deaths or {}).get(i)) for i, e in enumerate(engines)]
    )


def requests(*lengths: int) -> list[PoolingRequest]:
    return [PoolingRequest((1,) * n) for n in lengths]


def test_the_longest_first_to_the_least_loaded() -> None:
    # 9 -> first; 5 -> second; 4 -> second (9 against 5); 3 -> first (9 = 9, the earlier); 1 ->
    # second (12 against 9)
    assert deal([4, 9, 1, 5, 3], 2) == [[1, 4], [0, 2, 3]]
    assert deal([], 3) == [[], [], []]
    assert deal([2], 3) == [[0], [], []]


def test_costs_are_tokens_read_and_written() -> None:
    sampling = Sampling(max_tokens=10, n=3)
    assert request_cost(GenerateRequest((1, 2), sampling)) == 2 + 3 * 10
    assert request_cost(PoolingRequest((1, 2, 3))) == 3
    assert request_cost(EmbedRequest("12345678")) == 1 + 2
    assert request_cost("anything else") == 1


async def test_results_stand_in_the_order_of_the_requests() -> None:
    first, second = Echo(), Echo()
    assert await replicas(first, second).call(
        "classify", requests(4, 9, 1, 5, 3), timeout_s=PATIENCE_S
    ) == [4, 9, 1, 5, 3]
    assert (first.got, second.got) == ([9, 3], [4, 1, 5])


async def test_a_replica_without_requests_is_not_asked() -> None:
    first, second = Echo(), Echo()
    together = replicas(first, second)
    assert await together.call("classify", requests(4), timeout_s=PATIENCE_S) == [4]
    assert await together.call("classify", [], timeout_s=PATIENCE_S) == []
    assert [handle.calls for handle in together.handles] == [["classify"], []]  # type: ignore[attr-defined]


async def test_everything_else_goes_to_all() -> None:
    first, second = Echo(), Echo()
    together = replicas(first, second)
    await together.call("sleep", 2, timeout_s=PATIENCE_S)
    assert (first.state, second.state) == ("asleep 2", "asleep 2")
    assert await together.call("resident_bytes", timeout_s=PATIENCE_S) == 14
    assert await together.call("ping", timeout_s=PATIENCE_S) == "asleep 2"


async def test_one_dead_replica_is_the_loss_of_the_engine() -> None:
    together = replicas(Echo(), Echo(), deaths={1: 1})
    with pytest.raises(EngineLostError, match=r"r1\.classify"):
        await together.call("classify", requests(1, 1), timeout_s=PATIENCE_S)
    await together.kill()
    with pytest.raises(EngineLostError, match="r0"):
        await together.call("sleep", timeout_s=PATIENCE_S)


async def test_a_miscount_is_an_error() -> None:
    with pytest.raises(
        InfrastructureError, match="a replica returned 1 results of classify for 2 requests"
    ):
        await replicas(Echo(drop=1)).call("classify", requests(1, 1), timeout_s=PATIENCE_S)


async def test_when_one_cannot_be_made_the_others_are_ended() -> None:
    host = FakeHost()

    async def fails() -> Any:
        await asyncio.sleep(0.01)
        raise EngineLostError("no memory for the second")

    with pytest.raises(EngineLostError, match="the second"):
        await spawn_all(
            [host.spawn("tests.rewards.residency.test_replicas:Echo", {}, name="r0"), fails()]
        )
    assert [process.name for process in host.spawned] == ["r0"]
    assert host.living == []


async def test_nobody_is_left_when_nobody_waits_any_more() -> None:
    host = FakeHost()
    spawning = asyncio.create_task(
        spawn_all(
            [
                host.spawn("tests.rewards.residency.test_replicas:Echo", {}, name="r0"),
                asyncio.sleep(60),
            ]
        )
    )  # type: ignore[list-item]
    await asyncio.sleep(0.01)
    assert host.living == ["r0"]
    spawning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await spawning
    assert host.living == []


def test_requests_with_one_prefix_stay_on_one_replica():
    def request(tokens: int, prefix: int) -> GenerateRequest:
        sampling = Sampling(max_tokens=1, temperature=0.0)
        return GenerateRequest(tuple(range(tokens)), sampling, prefix=prefix)

    # costs 10, 10, 10 | 20, 20 | 25, each with one token more to write
    requests = [request(9, 1), request(9, 1), request(9, 1), request(19, 2), request(19, 2)]
    requests.append(request(24, 0))
    assert deal_bundles(requests, 2) == [[3, 4], [0, 1, 2, 5]]
    # without a number each goes where there is least: 25 + 10 + 10, 20 + 20 + 10
    alone = [dataclasses.replace(each, prefix=0) for each in requests]
    assert deal_bundles(alone, 2) == [[0, 1, 5], [2, 3, 4]]

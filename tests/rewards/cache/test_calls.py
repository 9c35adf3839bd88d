"""Each question once: within a call, and over calls where there is a store."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import InfrastructureError
from rmrl.inference.reward_engine_base import (
    EmbedRequest,
    GenerateRequest,
    PoolingRequest,
    TextOutput,
    ValueOutput,
)
from rmrl.rewards.cache.calls import CachedCalls, CacheStats
from rmrl.rewards.cache.store import CacheStore
from rmrl.types import Sampling
from tests.patience import PATIENCE_S

GREEDY = Sampling(max_tokens=4, temperature=0.0)
WARM = Sampling(max_tokens=4, temperature=1.0, n=2)


class Engine:
    """Numbers its answers, so that two draws for one question can be told apart."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def run(self, method: str, requests: list[Any]) -> list[Any]:
        start = len(self.asked)
        self.asked += requests
        if method == "classify":
            return [ValueOutput(float(sum(r.token_ids)), len(r.token_ids)) for r in requests]
        return [
            [TextOutput(f"{start + i}.{vote}", "stop", 1, 1) for vote in range(r.sampling.n)]
            for i, r in enumerate(requests)
        ]


@pytest.fixture
def store(tmp_path: Path, nothing_logged: None) -> Iterator[CacheStore]:
    made = CacheStore(tmp_path / "c.sqlite", max_bytes=2**30)
    yield made
    made.close()


def calls(
    engine: Engine, store: CacheStore | None = None, *, key: str = "k", sampled: bool = False
) -> CachedCalls:
    return CachedCalls(engine.run, store=store, scorer_key=key, label="judge", sampled=sampled)


def pool(*tokens: int) -> PoolingRequest:
    return PoolingRequest(tokens)


async def test_duplicates_go_out_once_without_a_store() -> None:
    engine = Engine()
    way = calls(engine)
    got = await way.submit("classify", [pool(1), pool(2, 3), pool(1), pool(1)], deterministic=True)
    assert [output.value for output in got] == [1.0, 5.0, 1.0, 1.0]
    assert engine.asked == [pool(1), pool(2, 3)]
    assert way.take_stats() == CacheStats(requests=4, duplicates=2)
    assert way.stats == CacheStats()
    await way.submit("classify", [pool(1)], deterministic=True)
    assert len(engine.asked) == 3


async def test_draws_are_never_merged() -> None:
    engine = Engine()
    request = GenerateRequest((1,), WARM)
    got = await calls(engine).submit("generate", [request, request], deterministic=False)
    assert [[o.text for o in group] for group in got] == [["0.0", "0.1"], ["1.0", "1.1"]]


async def test_a_second_scorer_finds_what_the_first_asked(store: CacheStore) -> None:
    engine = Engine()
    first, second = calls(engine, store), calls(engine, store)
    requests = [pool(1), pool(2), pool(2)]
    fresh = await first.submit("classify", requests, deterministic=True)
    again = await second.submit("classify", [*requests, pool(4)], deterministic=True)
    assert [output.cached for output in fresh] == [False] * 3
    assert again[:3] == [dataclasses.replace(output, cached=True) for output in fresh]
    assert (again[3].value, again[3].cached) == (4.0, False)
    assert engine.asked == [pool(1), pool(2), pool(4)]
    assert first.stats == CacheStats(requests=3, duplicates=1, stored=2)
    assert second.stats == CacheStats(requests=4, duplicates=1, hits=2, stored=1)


async def test_the_engine_is_not_called_when_all_is_known(store: CacheStore) -> None:
    async def run(method: str, requests: list[Any]) -> list[Any]:
        pytest.fail(f"{method} was called with {requests}")

    await calls(Engine(), store).submit("classify", [pool(1), pool(2)], deterministic=True)
    known = CachedCalls(run, store=store, scorer_key="k", label="judge", sampled=False)
    assert [
        o.value for o in await known.submit("classify", [pool(2), pool(1)], deterministic=True)
    ] == [2.0, 1.0]
    assert await known.submit("classify", [], deterministic=True) == []


async def test_another_scorer_or_method_has_verdicts_of_its_own(store: CacheStore) -> None:
    engine = Engine()
    await calls(engine, store).submit("classify", [pool(1)], deterministic=True)
    await calls(engine, store, key="other").submit("classify", [pool(1)], deterministic=True)
    assert engine.asked == [pool(1), pool(1)]


async def test_draws_are_kept_only_where_asked(store: CacheStore) -> None:
    engine = Engine()
    request = GenerateRequest((1,), WARM)
    plain, kept = calls(engine, store), calls(engine, store, sampled=True)
    for _ in range(2):
        await plain.submit("generate", [request], deterministic=False)
    assert len(engine.asked) == 2
    assert plain.stats == CacheStats(requests=2)
    first = await kept.submit("generate", [request, request], deterministic=False)
    again = await kept.submit("generate", [request], deterministic=False)
    assert (
        [o.text for o in first[0]]
        == [o.text for o in first[1]]
        == [o.text for o in again[0]]
        == ["2.0", "2.1"]
    )
    assert [o.cached for o in again[0]] == [True, True]


async def test_greedy_text_is_kept_and_its_failures_are_not(store: CacheStore) -> None:
    failing = True

    async def run(method: str, requests: list[Any]) -> list[Any]:
        failed = TextOutput("", "", 1, 0, failure="timeout", detail="60 s")
        return [
            [failed if failing and r.token_ids == (2,) else TextOutput("fine", "stop", 1, 1)]
            for r in requests
        ]

    way = CachedCalls(run, store=store, scorer_key="k", label="judge", sampled=False)
    requests = [GenerateRequest((1,), GREEDY), GenerateRequest((2,), GREEDY)]
    assert [
        group[0].failure for group in await way.submit("generate", requests, deterministic=True)
    ] == ["", "timeout"]
    failing = False
    assert [
        (g[0].failure, g[0].cached)
        for g in await way.submit("generate", requests, deterministic=True)
    ] == [("", True), ("", False)]


async def test_a_wrong_count_names_both_numbers(store: CacheStore) -> None:
    async def run(method: str, requests: list[Any]) -> list[Any]:
        return [ValueOutput(0.0, 1)]

    for kept in (None, store):
        way = CachedCalls(run, store=kept, scorer_key="k", label="judge", sampled=False)
        with pytest.raises(
            InfrastructureError, match="judge gave 1 results of classify for 2 requests"
        ):
            await way.submit("classify", [pool(1), pool(2)], deterministic=True)


async def test_the_loop_stays_free_while_the_file_works(tmp_path: Path) -> None:
    seen: set[int] = set()

    class Watched(CacheStore):
        def get_many(self, keys: Any) -> Any:
            seen.add(threading.get_ident())
            return super().get_many(keys)

        def put_many(self, results: Any, *, scorer: str, reward: str) -> int:
            seen.add(threading.get_ident())
            return super().put_many(results, scorer=scorer, reward=reward)

    watched = Watched(tmp_path / "w.sqlite", max_bytes=2**30)
    await asyncio.gather(
        *(
            calls(Engine(), watched).submit("classify", [pool(i)], deterministic=True)
            for i in range(8)
        )
    )
    watched.close()
    assert threading.get_ident() not in seen
    assert seen


async def test_a_closed_store_is_as_good_as_none(store: CacheStore) -> None:
    store.close()
    engine = Engine()
    way = calls(engine, store)
    for _ in range(2):
        assert (await way.submit("classify", [pool(3)], deterministic=True))[0].value == 3.0
    assert len(engine.asked) == 2


async def test_requests_of_every_kind_can_be_asked(store: CacheStore) -> None:
    async def run(method: str, requests: list[Any]) -> list[Any]:
        return [ValueOutput(float(len(r.text)), 1) for r in requests]

    way = CachedCalls(run, store=store, scorer_key="k", label="judge", sampled=False)
    for _ in range(2):
        got = await way.submit(
            "embed", [EmbedRequest("ab"), EmbedRequest("abc")], deterministic=True
        )
        assert [o.value for o in got] == [2.0, 3.0]
    assert way.stats.hits == 2


class Slow(Engine):
    """Answers when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.calls = 0

    async def run(self, method: str, requests: list[Any]) -> list[Any]:
        self.calls += 1
        results = await super().run(method, requests)
        await self.go.wait()
        return results


def sharing(
    engine: Engine, waits: list[int] | None = None, store: CacheStore | None = None
) -> CachedCalls:
    """`waits`: +1 and -1 as calls begin and end to wait for others."""
    log = [] if waits is None else waits

    @contextlib.contextmanager
    def waiting() -> Iterator[None]:
        log.append(1)
        yield
        log.append(-1)

    return CachedCalls(
        engine.run, store=store, scorer_key="k", label="judge", sampled=False, waiting=waiting
    )


async def test_calls_of_one_batch_share_what_is_under_way() -> None:
    engine, waits = Slow(), []
    way = sharing(engine, waits)
    first = asyncio.create_task(way.submit("classify", [pool(1), pool(2)], deterministic=True))
    second = asyncio.create_task(
        way.submit("classify", [pool(2), pool(3), pool(1)], deterministic=True)
    )
    third = asyncio.create_task(way.submit("classify", [pool(3)], deterministic=True))
    await asyncio.sleep(0.01)
    assert engine.asked == [pool(1), pool(2), pool(3)]
    assert waits == [1]  # the third waits; the second still waits for its own
    engine.go.set()
    got = [[o.value for o in await task] for task in (first, second, third)]
    assert got == [[1.0, 2.0], [2.0, 3.0, 1.0], [3.0]]
    assert sum(waits) == 0
    assert (await way.submit("classify", [pool(2)], deterministic=True))[
        0
    ].value == 2.0  # of the same batch
    assert engine.calls == 2
    assert way.take_stats() == CacheStats(requests=7, duplicates=4)
    await way.submit("classify", [pool(2)], deterministic=True)  # of the next
    assert engine.calls == 3


async def test_a_cancelled_call_leaves_its_questions_to_the_others() -> None:
    engine = Slow()
    way = sharing(engine)
    first = asyncio.create_task(way.submit("classify", [pool(1)], deterministic=True))
    second = asyncio.create_task(way.submit("classify", [pool(1)], deterministic=True))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)
    engine.go.set()
    assert [o.value for o in await asyncio.wait_for(second, PATIENCE_S)] == [1.0]
    assert engine.calls == 2
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_who_waits_can_be_cancelled_and_the_answer_still_comes() -> None:
    engine = Slow()
    way = sharing(engine)
    first = asyncio.create_task(way.submit("classify", [pool(1)], deterministic=True))
    second = asyncio.create_task(way.submit("classify", [pool(1)], deterministic=True))
    await asyncio.sleep(0.01)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    engine.go.set()
    assert [o.value for o in await asyncio.wait_for(first, PATIENCE_S)] == [1.0]


async def test_an_error_reaches_every_call_that_asked() -> None:
    async def run(method: str, requests: list[Any]) -> list[Any]:
        await asyncio.sleep(0)
        raise InfrastructureError("the engine is gone")

    way = CachedCalls(
        run, store=None, scorer_key="", label="judge", sampled=False, waiting=contextlib.nullcontext
    )
    both = await asyncio.gather(
        *(way.submit("classify", [pool(1)], deterministic=True) for _ in range(2)),
        return_exceptions=True,
    )
    assert [str(error) for error in both] == ["the engine is gone"] * 2


async def test_a_failure_is_asked_again_within_the_batch() -> None:
    answers = iter([ValueOutput(float("nan"), 1, failure="timeout"), ValueOutput(4.0, 1)])

    async def run(method: str, requests: list[Any]) -> list[Any]:
        return [next(answers) for _ in requests]

    way = CachedCalls(
        run, store=None, scorer_key="", label="judge", sampled=False, waiting=contextlib.nullcontext
    )
    assert [
        (await way.submit("classify", [pool(1)], deterministic=True))[0].failure for _ in range(3)
    ] == ["timeout", "", ""]


async def test_sharing_and_the_store_work_together(store: CacheStore) -> None:
    engine = Engine()
    way = sharing(engine, store=store)
    for _ in range(2):
        got = await asyncio.gather(
            *(way.submit("classify", [pool(i % 3)], deterministic=True) for i in range(9))
        )
        assert [outputs[0].value for outputs in got] == [0.0, 1.0, 2.0] * 3
        way.take_stats()
    assert len(engine.asked) == 3

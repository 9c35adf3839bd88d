"""The way to an engine with a memory: equal requests are sent once, and what the store knows is not
sent at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from rmrl.errors import InfrastructureError
from rmrl.rewards.cache.keys import request_key
from rmrl.rewards.cache.store import CacheStore

Run = Callable[[str, list[Any]], Awaitable[list[Any]]]
"""(method, requests) -> one result per request."""
Waiting = Callable[[], AbstractContextManager[None]]


@dataclass(slots=True)
class CacheStats:
    """Counts of requests."""

    requests: int = 0
    """What was asked for."""
    duplicates: int = 0
    """Of these, equal to another one, whose result they share."""
    hits: int = 0
    """Of the distinct ones, answered by the store."""
    stored: int = 0
    """New in the store."""


class CachedCalls:
    """Implements `kinds.context.Calls` around `run`.

    `store`: None keeps nothing, duplicates are still asked once. `scorer_key`, `label`: whose
    verdicts they are (key of the scorer,
    name of the reward); the key is only read where there is a store. `sampled`: also keep what was
    drawn at a temperature; such
    requests are then drawn once and repeated, duplicates included.
    `waiting`: entered while one call waits for another's answer to the same request. Without it
    only duplicates within a call are
    found; with it also those of other calls since `take_stats`, as when the responses of a batch
    come one by one.
    """

    def __init__(
        self,
        run: Run,
        *,
        store: CacheStore | None,
        scorer_key: str,
        label: str,
        sampled: bool,
        waiting: Waiting | None = None,
    ) -> None:
        self._run, self._store = run, store
        self._scorer_key, self._label, self._sampled, self._waiting = (
            scorer_key,
            label,
            sampled,
            waiting,
        )
        self._batch: dict[tuple[str, Any], asyncio.Future[Any]] = {}
        self.stats = CacheStats()

    def take_stats(self) -> CacheStats:
        """The counts since they were last taken. Ends the batch: its answers are forgotten, but for
        what the store keeps."""
        taken, self.stats = self.stats, CacheStats()
        self._batch = {asked: answer for asked, answer in self._batch.items() if not answer.done()}
        return taken

    async def submit(
        self, method: str, requests: Sequence[Any], *, deterministic: bool
    ) -> list[Any]:
        """One result per request, in order; from the store with `cached` set. `run` is not called
        when nothing is left to ask."""
        self.stats.requests += len(requests)
        if not requests:
            return []
        if not deterministic and not (self._sampled and self._store is not None):
            return await self._ask(method, list(requests))
        number: dict[Any, int] = {}
        places = [number.setdefault(request, len(number)) for request in requests]
        self.stats.duplicates += len(requests) - len(number)
        answers = self._answers if self._waiting is None else self._shared
        results = await answers(method, list(number))
        return [results[place] for place in places]

    async def _shared(self, method: str, distinct: list[Any]) -> list[Any]:
        """Asks what no other call has asked, and waits for the others. Own answers never wait, so
        two calls cannot block each other."""
        others = {
            place: self._batch[method, r]
            for place, r in enumerate(distinct)
            if (method, r) in self._batch
        }
        own = [place for place in range(len(distinct)) if place not in others]
        found: dict[int, Any] = {}
        if own:
            found = dict(
                zip(own, await self._owned(method, [distinct[place] for place in own]), strict=True)
            )
        for place, answer in others.items():
            found[place] = await self._other(answer)
        lost = [place for place in others if found[place] is None]
        if lost:
            found |= zip(
                lost, await self._shared(method, [distinct[place] for place in lost]), strict=True
            )
        self.stats.duplicates += len(others) - len(lost)
        return [found[place] for place in range(len(distinct))]

    async def _owned(self, method: str, requests: list[Any]) -> list[Any]:
        """Answers that other calls may wait for; when they do not come, the others are told to ask
        themselves."""
        loop = asyncio.get_running_loop()
        promised = {(method, request): loop.create_future() for request in requests}
        self._batch |= promised
        try:
            results = await self._answers(method, requests)
        except BaseException:
            for asked, promise in promised.items():
                promise.cancel()
                self._batch.pop(asked, None)
            raise
        for (asked, promise), result in zip(promised.items(), results, strict=True):
            promise.set_result(result)
            if _failed(result):
                self._batch.pop(asked, None)
        return results

    async def _other(self, answer: asyncio.Future[Any]) -> Any:
        """Another call's result; None where that call failed or was cancelled."""
        assert self._waiting is not None
        with self._waiting():
            await asyncio.wait([answer])
        return None if answer.cancelled() else answer.result()

    async def _answers(self, method: str, distinct: list[Any]) -> list[Any]:
        if self._store is None:
            return await self._ask(method, distinct)
        keys, found = await asyncio.to_thread(self._look_up, self._store, method, distinct)
        self.stats.hits += len(found)
        asked = [place for place, key in enumerate(keys) if key not in found]
        if asked:
            results = await self._ask(method, [distinct[place] for place in asked])
            fresh = dict(zip((keys[place] for place in asked), results, strict=True))
            found |= fresh
            self.stats.stored += await asyncio.to_thread(
                self._store.put_many, fresh, scorer=self._scorer_key, reward=self._label
            )
        return [found[key] for key in keys]

    def _look_up(
        self, store: CacheStore, method: str, distinct: Sequence[Any]
    ) -> tuple[list[bytes], dict[bytes, Any]]:
        keys = [request_key(self._scorer_key, method, request) for request in distinct]
        return keys, dict(store.get_many(keys))

    async def _ask(self, method: str, requests: list[Any]) -> list[Any]:
        results = await self._run(method, requests)
        if len(results) != len(requests):
            raise InfrastructureError(
                f"the engine of {self._label} gave {len(results)} results of {method} for"
                f" {len(requests)} requests"
            )
        return results


def _failed(result: Any) -> bool:
    return any(output.failure for output in (result if isinstance(result, list) else [result]))

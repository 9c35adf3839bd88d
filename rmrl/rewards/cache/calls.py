"""Cached calls to an engine: equal requests are sent once, and requests in the store are not sent
at all."""

from __future__ import annotations

import asyncio
import functools
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
    """All requests."""
    duplicates: int = 0
    """Requests that are equal to another one and share its result."""
    hits: int = 0
    """Distinct requests answered by the store."""
    stored: int = 0
    """New in the store."""


class CachedCalls:
    """Implements `kinds.context.Calls` around `run`.

    `store`: None keeps nothing; duplicates are still sent once. `scorer_key`, `label`: the scorer's
    key and the reward's name whose verdicts they are. The key is only read where there is a store.
    `sampled`: also keep samples drawn at a temperature. Such requests are then drawn once and
    repeated, duplicates included. `waiting`: entered while one call waits for another's answer to
    the same request. Without it only duplicates within a call are shared. With it also other calls'
    since `take_stats`, as when a batch's responses come one by one.
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
        self._run = run
        self._store = store
        self._scorer_key = scorer_key
        self._label = label
        self._sampled = sampled
        self._waiting = waiting
        self._batch: dict[tuple[str, Any], asyncio.Future[Any]] = {}
        self.stats = CacheStats()

    def take_stats(self) -> CacheStats:
        """Return the counts since this method was last called. Ends the batch: its answers are
        dropped, except those in the store."""
        stats = self.stats
        self.stats = CacheStats()
        for request, answer in list(self._batch.items()):
            if answer.done():
                del self._batch[request]
        return stats

    async def submit(
        self, method: str, requests: Sequence[Any], *, deterministic: bool
    ) -> list[Any]:
        """Return one result per request, in order; those from the store have `cached` set. `run` is
        only called with requests that need an answer."""
        self.stats.requests += len(requests)
        if not requests:
            return []
        if not deterministic and not (self._sampled and self._store is not None):
            return await self._send(method, list(requests))
        distinct = list(dict.fromkeys(requests))
        self.stats.duplicates += len(requests) - len(distinct)
        if self._waiting is None:
            results = await self._answers(method, distinct)
        else:
            results = await self._shared(method, distinct)
        result_of = dict(zip(distinct, results, strict=True))
        return [result_of[request] for request in requests]

    async def _shared(self, method: str, distinct: list[Any]) -> list[Any]:
        """Send the requests that no other call has sent, then wait for the others' answers.

        A call never waits before its own answers have come, so two calls cannot block each other.
        """
        others: dict[Any, asyncio.Future[Any]] = {}
        new: list[Any] = []
        for request in distinct:
            if (method, request) in self._batch:
                others[request] = self._batch[method, request]
            else:
                new.append(request)
        result_of: dict[Any, Any] = {}
        if new:
            result_of = dict(zip(new, await self._owned(method, new), strict=True))
        lost: list[Any] = []
        for request, answer in others.items():
            assert self._waiting is not None
            with self._waiting():
                await asyncio.wait([answer])
            if answer.cancelled():
                lost.append(request)
            else:
                result_of[request] = answer.result()
        if lost:
            result_of.update(zip(lost, await self._shared(method, lost), strict=True))
        self.stats.duplicates += len(others) - len(lost)
        return [result_of[request] for request in distinct]

    async def _owned(self, method: str, requests: list[Any]) -> list[Any]:
        """Return answers that other calls may wait for. When the call fails, the others send their
        requests themselves."""
        loop = asyncio.get_running_loop()
        futures = {(method, request): loop.create_future() for request in requests}
        self._batch |= futures
        try:
            results = await self._answers(method, requests)
        except BaseException:
            for request, future in futures.items():
                future.cancel()
                self._batch.pop(request, None)
            raise
        for (request, future), result in zip(futures.items(), results, strict=True):
            future.set_result(result)
            outputs = result if isinstance(result, list) else [result]
            if any(output.failure for output in outputs):
                self._batch.pop(request, None)
        return results

    async def _answers(self, method: str, distinct: list[Any]) -> list[Any]:
        """Return results from the store, and the engine's for the other requests."""
        if self._store is None:
            return await self._send(method, distinct)
        key_of = functools.partial(request_key, self._scorer_key, method)
        keys = await asyncio.to_thread(list, map(key_of, distinct))
        stored = await asyncio.to_thread(self._store.get_many, keys)
        self.stats.hits += len(stored)
        result_of: dict[bytes, Any] = dict(stored)
        request_of = dict(zip(keys, distinct, strict=True))
        new_keys = [key for key in keys if key not in stored]
        if new_keys:
            results = await self._send(method, [request_of[key] for key in new_keys])
            new = dict(zip(new_keys, results, strict=True))
            result_of |= new
            self.stats.stored += await asyncio.to_thread(
                self._store.put_many, new, scorer=self._scorer_key, reward=self._label
            )
        return [result_of[key] for key in keys]

    async def _send(self, method: str, requests: list[Any]) -> list[Any]:
        results = await self._run(method, requests)
        if len(results) != len(requests):
            raise InfrastructureError(
                f"the engine of {self._label} gave {len(results)} results of {method} for"
                f" {len(requests)} requests"
            )
        return results

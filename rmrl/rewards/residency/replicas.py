"""Use several processes with the same model as one. Requests are distributed by their tokens, and
results stay in order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from itertools import chain
from typing import Any

from rmrl.errors import InfrastructureError
from rmrl.inference.reward_engine_base import (
    EmbedRequest,
    GenerateRequest,
    LogprobsRequest,
    PoolingRequest,
)
from rmrl.interfaces import ProcessHandle

_DISTRIBUTED = (
    "generate",
    "classify",
    "label_logits",
    "token_logits",
    "token_logprobs",
    "embed",
)
_CHARACTERS_PER_TOKEN = 4


class Replicas:
    """Implements rmrl.interfaces.ProcessHandle. A lost replica makes the whole engine lost."""

    def __init__(self, handles: Sequence[ProcessHandle]) -> None:
        """`handles`: at least one."""
        assert handles
        self.handles = tuple(handles)

    async def call(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        """Distribute requests. Any other call goes to all replicas. `resident_bytes` returns the
        sum, any other call the first replica's answer."""
        if method in _DISTRIBUTED:
            return await self._distributed(method, *args, timeout_s=timeout_s)
        answers = await asyncio.gather(
            *(h.call(method, *args, timeout_s=timeout_s, **kwargs) for h in self.handles)
        )
        return sum(answers) if method == "resident_bytes" else answers[0]

    def remember_family(self) -> None:
        """Note the children of all replicas."""
        for handle in self.handles:
            handle.remember_family()

    async def alive(self, *, timeout_s: float) -> None:
        """Raise EngineLostError where a replica has ended."""
        await asyncio.gather(*(handle.alive(timeout_s=timeout_s) for handle in self.handles))

    async def kill(self) -> None:
        """End all replicas."""
        await asyncio.gather(*(handle.kill() for handle in self.handles))

    async def _distributed(
        self, method: str, requests: Sequence[Any], *, timeout_s: float
    ) -> list[Any]:
        shares = deal_bundles(requests, len(self.handles))
        calls: list[Coroutine[Any, Any, Any]] = []
        for handle, share in zip(self.handles, shares, strict=True):
            if share:
                some = [requests[i] for i in share]
                calls.append(handle.call(method, some, timeout_s=timeout_s))
        answers = await asyncio.gather(*calls)
        results: list[Any] = [None] * len(requests)
        for share, answer in zip(filter(None, shares), answers, strict=True):
            if len(answer) != len(share):
                raise InfrastructureError(
                    f"a replica returned {len(answer)} results of {method} for {len(share)}"
                    " requests"
                )
            for position, result in zip(share, answer, strict=True):
                results[position] = result
        return results


async def spawn_all(spawns: Sequence[Coroutine[Any, Any, ProcessHandle]]) -> list[ProcessHandle]:
    """Return the started processes. After an error or a cancellation, the processes that did start
    are ended before the error is raised."""
    tasks = [asyncio.ensure_future(spawn) for spawn in spawns]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        handles = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        await asyncio.gather(*(handle.kill() for handle in handles))
        raise


def deal(costs: Sequence[float], shares: int) -> list[list[int]]:
    """Return each share's positions, ascending, so that the sums of costs are close. The costliest
    comes first, each to the least loaded share."""
    load = [0.0] * shares
    positions: list[list[int]] = [[] for _ in range(shares)]
    for position in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        share = load.index(min(load))
        positions[share].append(position)
        load[share] += costs[position]
    return list(map(sorted, positions))


def deal_bundles(requests: Sequence[Any], shares: int) -> list[list[int]]:
    """Distribute requests by their costs like `deal`, with equal `prefix` kept together."""
    bundles: dict[tuple[str, int], list[int]] = {}
    for position, request in enumerate(requests):
        prefix = getattr(request, "prefix", 0)
        key = ("prefix", prefix) if prefix else ("position", position)
        bundles.setdefault(key, []).append(position)
    members = list(bundles.values())
    costs = [sum(request_cost(requests[i]) for i in bundle) for bundle in members]
    dealt: list[list[int]] = []
    for share in deal(costs, shares):
        dealt.append(sorted(chain.from_iterable(members[number] for number in share)))
    return dealt


def request_cost(request: Any) -> float:
    """Return the request's largest number of tokens: the tokens read, and for texts the tokens
    written."""
    match request:
        case GenerateRequest():
            return len(request.token_ids) + request.sampling.n * request.sampling.max_tokens
        case PoolingRequest() | LogprobsRequest():
            return len(request.token_ids)
        case EmbedRequest():
            return 1 + len(request.text) / _CHARACTERS_PER_TOKEN
        case _:
            return 1.0

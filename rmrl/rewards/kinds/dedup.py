"""Equal inputs of a deterministic scorer are scored once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from rmrl.rewards.engines.merge import MergedCalls


async def score_distinct(
    requests: Sequence[Any], keys: Sequence[Hashable], calls: MergedCalls, *, method: str, deterministic: bool
) -> list[Any]:
    """Results of `requests` in order; requests with equal keys share one result when the scorer is deterministic."""
    if not deterministic:
        return await calls.submit(method, requests)
    first: dict[Hashable, int] = {}
    for key in keys:
        first.setdefault(key, len(first))
    distinct = dict(zip(keys, requests, strict=True))
    results = await calls.submit(method, [distinct[key] for key in first])
    return [results[first[key]] for key in keys]

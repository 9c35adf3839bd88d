"""Kind `rule`: a Python function `compute_score(data_source, solution_str, ground_truth, extra_info=None)`.

It runs in a pool of killable processes. It returns a number (bool and numpy scalars count), None for "no verdict", or a dict with
"score" plus extra columns. What raises or returns anything else has no verdict, status "user_error"; it is never a 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rmrl.rewards.dropin import FunctionSource
from rmrl.rewards.kinds.rule_pool import RulePool
from rmrl.types import ScoreItem, ScoreResult

if TYPE_CHECKING:
    from rmrl.rewards.kinds.context import KindContext
    from rmrl.rewards.spec import RewardSpec


class RuleReward:
    """A rule as a reward kind. A drop-in file is read once, here: editing it during a run changes nothing."""

    def __init__(self, name: str, function: FunctionSource, *, pool: RulePool, timeout_s: float) -> None:
        """`timeout_s`: deadline of one response, in seconds from when the function is called with it."""
        if timeout_s <= 0:
            raise ValueError(f"reward '{name}': timeout_s is {timeout_s}; give a positive number of seconds, e.g. 10.")
        self.name = name
        self.source = function.frozen()
        self.pool = pool
        self.timeout_s = timeout_s

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> RuleReward:
        assert spec.function is not None
        return cls(spec.name, spec.function, pool=context.pool, timeout_s=spec.timeout_s)

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One verdict per item, in order. RewardFunctionError when a worker cannot import the function."""
        future = self.pool.submit(self.source, [call_of(item) for item in items], self.timeout_s)
        return await asyncio.wrap_future(future)


def call_of(item: ScoreItem) -> dict[str, Any]:
    """The keyword arguments a rule may name."""
    return {
        "data_source": item.data_source,
        "solution_str": item.response,
        "ground_truth": item.ground_truth,
        "extra_info": dict(item.extra_info),
        "finish_reason": item.finish_reason,
        "response_tokens": item.response_tokens,
    }

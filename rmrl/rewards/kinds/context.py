"""What a kind is given besides its own spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmrl.rewards.engines.merge import MergedCalls

if TYPE_CHECKING:
    from rmrl.rewards.kinds.rule_pool import RulePool


@dataclass(slots=True, kw_only=True)
class KindContext:
    """`tokenizer` loads (and caches) the tokenizer of a checkpoint; `calls` is set while the reward's engine is awake."""

    pool: RulePool
    tokenizer: Callable[[str], Any]
    calls: MergedCalls | None = None

    def engine_calls(self) -> MergedCalls:
        """The way to the engine; only valid inside the scorer's block that keeps it awake."""
        assert self.calls is not None, "a model reward was asked to score while its engine was not awake"
        return self.calls

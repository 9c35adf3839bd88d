"""Kind `environment`: a reward that the environment gave, in training on its episodes and on stored
traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rmrl.data.traces.stored_trace import ENV
from rmrl.registry import did_you_mean
from rmrl.rewards.kinds.kind import Kind
from rmrl.types import ScoreItem, ScoreResult


class EnvironmentReward(Kind):
    """Reads the number that the conversation carries, before the environment's own weight."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        """Entries that only this kind has."""

        reward: str = ""
        """The environment's name of it. "": the reward's own name, without `env.`. `reward` is the
        weighted sum that the environment trains on."""

    reads_responses: ClassVar[bool] = False
    works_in: ClassVar[str] = "the environment"

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """Return one result per item: `provider_error` where the environment did not compute the
        reward, `user_error` where it does not have it."""
        name = self._spec.options.reward or self._spec.name.removeprefix(ENV)
        return [_result(item, name) for item in items]


def _result(item: ScoreItem, name: str) -> ScoreResult:
    if item.conversation is None or not item.conversation.rewards:
        detail = (
            f"no environment played row {item.prompt_id}, so it has no reward '{name}': training"
            " with actor_rollout_ref.rollout.source=verifiers plays it, and stored traces hold it"
        )
        return ScoreResult(value=None, status="user_error", detail=detail)
    rewards = item.conversation.rewards
    if name not in rewards:
        hint = did_you_mean(name, sorted(rewards))
        detail = f"the environment gave no reward '{name}'{hint}"
        return ScoreResult(value=None, status="user_error", detail=detail)
    value = rewards[name]
    if value is None:
        detail = f"the environment did not compute '{name}'"
        return ScoreResult(value=None, status="provider_error", detail=detail)
    return ScoreResult(value=float(value))

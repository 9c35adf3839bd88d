"""A response's turns, scored one by one (entry `per`), and responses whose harness failed.

Every kind is called through `reader_of`. The verdict on a turn reads the conversation up to it: the
prompt ends where the turn begins. A response with a turn without a verdict has none itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rmrl.errors import RewardFunctionError
from rmrl.interfaces import ItemScorer
from rmrl.rewards.kinds.shared.context import Counts
from rmrl.rewards.reads.setting import EACH, PER_TURN
from rmrl.rewards.reads.turns import assistant_turns, conversation_of, turn_text
from rmrl.rewards.session.response_part import PartReader
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Conversation, Messages, ScoreItem, ScoreResult, Step

TURNS = "turns"
"""The result's column with each turn's score. None: no verdict."""


def reader_of(kind: ItemScorer, spec: RewardSpec, counts: Counts) -> ItemScorer:
    """Return a kind as it is called with whole responses."""
    part = kind if spec.reads.part == "all" else PartReader(kind, spec, counts)
    return TurnReader(part, spec)


class TurnReader:
    """Calls a kind with responses whose harness recorded no error, or with each of their turns."""

    def __init__(self, kind: ItemScorer, spec: RewardSpec) -> None:
        self.kind = kind
        """What is called."""
        self._spec = spec

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """Return one result per item. Raises what the kind raises, and RewardFunctionError where it
        returns another number of results for turns."""
        how = self._spec.reads.per_turn
        failed = [_failure(item) for item in items]
        if not how and not any(failed):
            return await self.kind.score(items)
        asked: list[list[ScoreItem]] = []
        for item, failure in zip(items, failed, strict=True):
            if failure:
                asked.append([])
            elif how:
                asked.append(turn_items(item))
            else:
                asked.append([item])
        flat = [turn for turns in asked for turn in turns]
        scored = await self.kind.score(flat) if flat else []
        if len(scored) != len(flat):
            raise RewardFunctionError(
                f"reward '{self._spec.name}' returned {len(scored)} scores for {len(flat)}"
                " responses"
            )
        remaining = iter(scored)
        results: list[ScoreResult] = []
        for turns, failure in zip(asked, failed, strict=True):
            own = [next(remaining) for _ in turns]
            if failure:
                results.append(failure)
            elif how:
                results.append(_combined(own, how))
            else:
                results.append(own[0])
        return results


def turn_items(item: ScoreItem) -> list[ScoreItem]:
    """Return an item for each assistant turn in the response; for one without such a turn the item
    itself."""
    messages, _ = conversation_of(item)
    return [_turn_item(item, messages, number) for number in assistant_turns(item)] or [item]


def _turn_item(item: ScoreItem, messages: Messages, number: int) -> ScoreItem:
    before = messages[:number]
    prompt = item.rm_prompt
    # A prompt of the row's own (rm_prompt) is the same for all turns.
    if before and prompt == _last_user(item.messages):
        prompt = _last_user(before)
    return dataclasses.replace(
        item,
        messages=before,
        rm_prompt=prompt,
        response=turn_text(messages[number]),
        whole=item.response,
        conversation=Conversation(messages=messages[: number + 1], first=number),
    )


def _last_user(messages: Messages) -> str:
    for message in reversed(messages):
        if message["role"] == "user":
            return message["content"]
    if not messages:
        return ""
    return messages[-1]["content"]


def _failure(item: ScoreItem) -> ScoreResult | None:
    talk = item.conversation
    if talk is None or talk.status == "ok":
        return None
    return ScoreResult(value=None, status=talk.status, detail=talk.detail, unasked=True)


def _combined(turns: Sequence[ScoreResult], how: str) -> ScoreResult:
    """Return a response's result, with its turns' scores as a column."""
    last = turns[-1]
    values = [turn.value for turn in turns]
    present = [value for value in values if value is not None]
    extra = {**last.extra, TURNS: values}
    sums = {
        name: sum(getattr(turn, name) for turn in turns)
        for name in ("latency_s", "tokens_in", "tokens_out")
    }
    if len(present) < len(values):
        number = values.index(None)
        missing = turns[number]
        return dataclasses.replace(
            missing, detail=f"turn {number + 1}: {missing.detail}", extra=extra, **sums
        )
    steps: tuple[Step, ...] = ()
    if how == EACH:
        steps = tuple(Step(0, value, turn) for turn, value in enumerate(present))
    return dataclasses.replace(last, value=PER_TURN[how](present), extra=extra, steps=steps, **sums)

"""The part of a response that a reward reads (entry `reads`).

Every kind is called through `PartReader`, so all kinds see the part as the response. Token number,
token ids and finish reason stay those of the whole response. The ends of steps are moved back to
their places in the whole response.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from rmrl.errors import RewardFunctionError
from rmrl.interfaces import ItemScorer
from rmrl.rewards.kinds.shared.context import Counts
from rmrl.rewards.reads.response_parts import Span, marks, response_parts
from rmrl.rewards.reads.setting import Reads
from rmrl.rewards.reads.thinking_blocks import left_open
from rmrl.rewards.reads.turns import (
    JOINT,
    assistant_turns,
    conversation_of,
    tools_text,
    transcript,
    turn_text,
)
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreItem, ScoreResult, Step


@dataclass(frozen=True, slots=True)
class PartText:
    """A response part, with its pieces' places in the response."""

    text: str
    pieces: tuple[Span, ...] = ()
    """() where the part is no piece of the response."""
    unclosed: bool = False
    """Whether the response ends inside its thinking, so that the part is not whole."""
    lacks: str = ""
    """Why the part is not there, where the response does not have the turn."""
    results: tuple[Span, ...] = ()
    """Places of tool results in the part."""

    def place(self, end: int) -> int:
        """Return the place in the response for a place `end` in the part. Both count the characters
        before them."""
        starts: list[int] = []
        position = 0
        for first, last in self.pieces:
            starts.append(position)
            position += last - first + len(JOINT)
        # A place between two pieces belongs to the first of them.
        number = max(bisect_left(starts, end) - 1, 0)
        first, last = self.pieces[number]
        return min(first + end - starts[number], last)


def part_of(item: ScoreItem, reads: Reads) -> PartText:
    """Return the part of an item's response that `reads` names.

    A response without thinking is its own answer, unchanged. Elsewhere white space around the
    pieces is left out, and several pieces are joined by an empty line.
    """
    text = item.response
    if reads.part in ("transcript", "tools"):
        turns = transcript(item) if reads.part == "transcript" else tools_text(item)
        return PartText(turns.text, results=turns.results)
    if reads.part in ("last", "turn"):
        numbers = assistant_turns(item)
        index = reads.turn - (reads.turn > 0) if reads.part == "turn" else -1
        if not -len(numbers) <= index < len(numbers):
            return PartText("", lacks=f"the response has {len(numbers)} turns: no {reads}")
        return PartText(turn_text(conversation_of(item)[0][numbers[index]]))
    pairs = marks(reads.tags)
    opened = item.opens_thinking
    if opened is False and reads.tags is not None:
        # The prompt was searched for the known marks only.
        opened = None
    if reads.opened:
        opened = True
    elif item.messages and item.messages[-1]["role"] == "assistant":
        # The response continues this turn.
        opened = left_open(item.messages[-1]["content"], pairs) or opened
    parts = response_parts(text, opened=opened, tags=reads.tags)
    spans = parts.part(reads.part)
    if spans == ((0, len(text)),) and not parts.thinking:
        return PartText(text, spans)
    pieces: list[Span] = []
    texts: list[str] = []
    for start, end in spans:
        piece = text[start:end]
        if piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            texts.append(piece.strip())
            pieces.append((first, first + len(texts[-1])))
    if not pieces:
        pieces = [(len(text), len(text))]
    return PartText(JOINT.join(texts), tuple(pieces), parts.unclosed)


def part_item(item: ScoreItem, reads: Reads) -> ScoreItem:
    """Return the item as a kind sees it: with the part as the response, as far as the part is
    there."""
    if reads.part == "all":
        return item
    part = part_of(item, reads)
    return _item(item, part)


def _item(item: ScoreItem, part: PartText) -> ScoreItem:
    return dataclasses.replace(
        item, response=part.text, whole=item.response, tool_results=part.results
    )


class PartReader:
    """Calls a kind with response parts."""

    def __init__(self, kind: ItemScorer, spec: RewardSpec, counts: Counts) -> None:
        self._kind = kind
        self._spec = spec
        self._counts = counts

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """Return one result per item with a whole response. Raises RewardFunctionError where the
        kind returns another number of results, and any error that the kind raises."""
        reads = self._spec.reads
        parts = [part_of(item, reads) for item in items]
        if reads.parts_thinking:
            self._counts.add("unclosed", sum(part.unclosed for part in parts), len(parts))
        asked: list[ScoreItem] = [
            _item(item, part)
            for item, part in zip(items, parts, strict=True)
            if not part.lacks and (not part.unclosed or reads.unclosed == "read")
        ]
        scored = await self._kind.score(asked) if asked else []
        if len(scored) != len(asked):
            raise RewardFunctionError(
                f"reward '{self._spec.name}' returned {len(scored)} scores for {len(asked)}"
                " responses"
            )
        detail = "the response ends inside its thinking"
        if isinstance(reads.unclosed, str):
            detail += (
                f", so its {reads.part} is not complete: raise"
                " data.max_response_length, see that the marks fit the policy's (`thinking`), or"
                f" give reward.specs.{self._spec.name}.unclosed a score"
            )
            without = ScoreResult(value=None, status="unparseable", detail=detail, unasked=True)
        else:
            detail += f": unclosed={reads.unclosed:g}"
            without = ScoreResult(value=float(reads.unclosed), detail=detail)
        remaining = iter(scored)
        results: list[ScoreResult] = []
        for item, part in zip(items, parts, strict=True):
            if part.unclosed and reads.unclosed != "read":
                results.append(without)
                continue
            if part.lacks:
                results.append(
                    ScoreResult(value=None, status="unparseable", detail=part.lacks, unasked=True)
                )
                continue
            result = next(remaining)
            steps: list[Step] = [Step(part.place(step.end), step.value) for step in result.steps]
            read = None if part.text == item.response else part.text
            results.append(dataclasses.replace(result, steps=tuple(steps), read=read))
        return results

"""Thinking blocks between an opening and a closing mark."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """Places of a block and of the thinking inside its marks."""

    start: int
    inner: int
    inner_end: int
    end: int
    closed: bool = True


@dataclass(frozen=True, slots=True)
class _Mark:
    start: int
    end: int
    opens: bool
    kind: str
    """Equal for marks that belong together."""


def thinking_blocks(
    text: str, pairs: Sequence[tuple[str, str]], *, opened: bool = False
) -> list[Block]:
    """Return the blocks of a text in order. `pairs`: regular expressions of an opening and a
    closing mark; `opened`: a prompt opened the first block. A block that is not closed is the last
    one and reaches to the end. Time is linear."""
    marks: list[_Mark] = []
    for number, (opening, closing) in enumerate(pairs):
        for match in re.finditer(f"({opening})|{closing}", text, re.IGNORECASE):
            # <think> and </thought> do not belong together, though they are of one pattern.
            name = match[0].replace("/", "").lower() if "/" in closing else ""
            kind = f"{number}{name}"
            marks.append(_Mark(match.start(), match.end(), match[1] is not None, kind))
    marks.sort(key=lambda mark: mark.start)
    starts_of: dict[str, list[int]] = {}
    ends_of: dict[str, list[int]] = {}
    for mark in marks:
        if not mark.opens:
            starts_of.setdefault(mark.kind, []).append(mark.start)
            ends_of.setdefault(mark.kind, []).append(mark.end)
    blocks: list[Block] = []
    position = 0
    # The response may open the block of the prompt once more.
    again = bool(marks) and marks[0].opens and not text[: marks[0].start].strip()
    if (opened and not again) or (marks and not marks[0].opens):
        first = next((mark for mark in marks if not mark.opens), None)
        if first is None:
            return [Block(0, 0, len(text), len(text), closed=False)]
        blocks.append(Block(0, 0, first.start, first.end))
        position = first.end
    behind = position
    for mark in marks:
        # The text in front of the mark, on its line and behind the mark before it.
        start = max(text.rfind("\n", behind, mark.start) + 1, behind)
        begins = start != behind or behind == position
        begins = begins and not text[start : mark.start].strip()
        behind = mark.end
        if not mark.opens or mark.start < position:
            continue
        place = bisect_left(starts_of.get(mark.kind, []), mark.end)
        if place < len(starts_of.get(mark.kind, [])):
            closing_start = starts_of[mark.kind][place]
            position = ends_of[mark.kind][place]
            blocks.append(Block(mark.start, mark.end, closing_start, position))
        elif begins:
            blocks.append(Block(mark.start, mark.end, len(text), len(text), closed=False))
            break
    return blocks

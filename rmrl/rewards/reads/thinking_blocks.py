"""The thinking block that a text begins with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

Pairs = Sequence[tuple[str, str]]
"""Regular expressions of opening and closing marks; upper and lower case are the same."""


@dataclass(frozen=True, slots=True)
class Block:
    """Places of a block and of the thinking inside its marks."""

    start: int
    inner: int
    inner_end: int
    end: int
    closed: bool = True


def leading_block(text: str, pairs: Pairs, *, opened: bool | None = None) -> Block | None:
    """Return the block that a text begins with, or None. Time is linear.

    `opened`: whether a prompt opened the block. None: not known. Then a closing mark is taken for
    the end of such a block if no opening mark of its pair stands in front of it. A block that is
    not closed reaches to the end. Marks behind the block are text.
    """
    begin = len(text) - len(text.lstrip())
    for opening, closing in pairs:
        # A response may open the block of the prompt once more.
        first = re.compile(opening, re.IGNORECASE).match(text, begin)
        if first is not None:
            last = re.compile(closing, re.IGNORECASE).search(text, first.end())
            if last is None:
                return Block(begin, first.end(), len(text), len(text), closed=False)
            return Block(begin, first.end(), last.start(), last.end())
    if opened is False:
        return None
    ends: list[tuple[int, int, str]] = []
    for opening, closing in pairs:
        found = re.search(closing, text, re.IGNORECASE)
        if found is not None:
            ends.append((found.start(), found.end(), opening))
    if not ends:
        return Block(0, 0, len(text), len(text), closed=False) if opened else None
    start, end, opening = min(ends)
    if not opened and re.compile(opening, re.IGNORECASE).search(text, 0, start):
        return None
    return Block(0, 0, start, end)


def left_open(prefix: str, pairs: Pairs) -> bool:
    """Return whether the last opening mark of a text that a response continues has no closing mark
    of its pair behind it."""
    place = -1
    is_open = False
    for opening, closing in pairs:
        opened_at = -1
        closed_at = -1
        for mark in re.finditer(f"({opening})|{closing}", prefix, re.IGNORECASE):
            if mark[1] is None:
                closed_at = mark.start()
            else:
                opened_at = mark.start()
        if opened_at > place:
            place = opened_at
            is_open = closed_at < opened_at
    return is_open

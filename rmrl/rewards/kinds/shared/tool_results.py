"""Tool results lose their middle first, where a conversation does not fit a model's context."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rmrl.rewards.kinds.shared.token_pieces import Pieces, shares
from rmrl.types import ScoreItem


def with_shorter_results(item: ScoreItem, over: int, *, tokenizer: Any, mark: str) -> ScoreItem:
    """Return the item without `over` tokens of its tool results, as far as they have that many. The
    longest lose first, and each keeps a token. `mark` stands where some were cut."""
    pieces: Sequence[Pieces] = [
        Pieces.of([item.response[start:end]], tokenizer) for start, end in item.tool_results
    ]
    sizes = [len(piece.spans) for piece in pieces]
    marked = len(Pieces.of([f" {mark} "], tokenizer).spans)
    counts = sizes
    # Each result that is cut gets a mark, for which further tokens go.
    for marks in range(1, len(pieces) + 1):
        counts = shares(sizes, max(sum(sizes) - over - marks * marked, len(pieces)))
        if sum(map(int.__lt__, counts, sizes)) <= marks:
            break
    text = ""
    place = 0
    places: list[tuple[int, int]] = []
    for (start, end), piece, count in zip(item.tool_results, pieces, counts, strict=True):
        (result,) = piece.cut(count, how="truncate_middle", mark=mark)
        text += item.response[place:start]
        places.append((len(text), len(text) + len(result)))
        text += result
        place = end
    return dataclasses.replace(item, response=text + item.response[place:], tool_results=places)

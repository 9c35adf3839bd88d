"""Cut a response into steps, and locate each step again: in the source text and among a tokenizer's
tokens.

Positions are counted in characters, `end` being the first character behind a part.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import accumulate
from typing import Any


def cut_steps(text: str, separator: str) -> list[str]:
    """The parts of `text`, each with the separator that ends it; joined they give `text` again.

    A part without a letter or digit of its own (several separators in a row) belongs to the part
    before it, at the start to the part after it. Without `separator`, or where it does not occur,
    the text is one step, and so is an empty text.
    """
    if not separator:
        return [text]
    pieces = [piece + separator for piece in text.split(separator)]
    pieces[-1] = pieces[-1][: -len(separator)]
    steps: list[str] = []
    for piece in pieces:
        bare = piece.removesuffix(separator).strip()
        if steps and (not bare or not steps[-1].replace(separator, "").strip()):
            steps[-1] += piece
        else:
            steps.append(piece)
    return steps


def step_ends(steps: Sequence[str]) -> list[int]:
    """The end of each step in the joined text."""
    return list(accumulate(map(len, steps)))


def locate_steps(steps: Sequence[str], text: str) -> list[int] | None:
    """The end of each of `steps` in `text`, searched for one behind the other; None where one is
    missing.

    Spaces and line breaks around a step, and between the steps, do not matter.
    """
    ends: list[int] = []
    position = 0
    for step in steps:
        bare = step.strip()
        start = text.find(bare, position)
        if start < 0:
            return None
        position = start + len(bare)
        ends.append(position)
    return ends


def last_tokens(ends: Sequence[int], offsets: Sequence[tuple[int, int]]) -> list[int]:
    """For each place in a text, the last token that begins before it, at which a causal model has
    read everything up to there.

    `offsets` are (start, end) of each token in the text. Byte-level tokenizers leave spaces out of
    them, so a token of nothing but spaces reads (end, end); tokens that stand for no text, such as
    a begin mark, read (0, 0) wherever they are. A place before all text gives the last token that
    stands for no text, or -1 where there is none.
    """
    begins: list[int] = []
    tokens: list[int] = []
    silent = -1
    for token, (start, end) in enumerate(offsets):
        if end > 0:
            tokens.append(token)
            begins.append(start - 1 if start == end else start)
        elif not tokens:
            silent = token
    last: list[int] = []
    for end in ends:
        count = bisect.bisect_left(begins, end)
        last.append(tokens[count - 1] if count else silent)
    return last


def tokens_of_parts(
    parts: Sequence[str], tokenizer: Any, *, special: bool
) -> tuple[list[int], list[int]]:
    """(token ids of the joined parts, each part's last token). `special`: the tokenizer adds
    its begin and end marks.

    A tokenizer without offsets (`is_fast` is false) is called part by part.
    """
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer("".join(parts), add_special_tokens=special, return_offsets_mapping=True)
        offsets = list(map(tuple, encoded["offset_mapping"]))
        return list(encoded["input_ids"]), last_tokens(step_ends(parts), offsets)
    ids: list[int] = []
    if special and tokenizer.bos_token_id is not None:
        ids.append(tokenizer.bos_token_id)
    last: list[int] = []
    for part in parts:
        ids += tokenizer(part, add_special_tokens=False)["input_ids"]
        last.append(len(ids) - 1)
    return ids, last

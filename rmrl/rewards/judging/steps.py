"""Cutting a response into steps, and finding each step again: in the text it came from and among a
tokenizer's tokens.

Positions are counted in characters, `end` being the first character behind a part.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
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
    """Where each step ends in the text that the steps make up."""
    ends: list[int] = []
    for step in steps:
        ends.append(len(step) + (ends[-1] if ends else 0))
    return ends


def locate_steps(steps: Sequence[str], text: str) -> list[int] | None:
    """Where each of `steps` ends in `text`, searched for one behind the other; None where one is
    not there.

    Spaces and line breaks around a step, and between the steps, do not matter.
    """
    ends, at = [], 0
    for step in steps:
        bare = step.strip()
        found = text.find(bare, at)
        if found < 0:
            return None
        at = found + len(bare)
        ends.append(at)
    return ends


def last_tokens(ends: Sequence[int], offsets: Sequence[tuple[int, int]]) -> list[int]:
    """For each place in a text, the last token that begins before it: it has seen everything up to
    there.

    `offsets` are (start, end) of each token in the text. Byte-level tokenizers leave spaces out of
    them, so a token of nothing but spaces reads (end, end); tokens that stand for no text, such as
    a begin mark, read (0, 0) wherever they are. A place before all text gives the last token that
    stands for no text, or -1 where there is none.
    """
    begins: list[int] = []
    tokens: list[int] = []
    silent = -1
    for token, (start, end) in enumerate(offsets):
        if end == 0:
            silent = token if not tokens else silent
            continue
        tokens.append(token)
        begins.append(start - 1 if start == end else start)
    return [
        tokens[found - 1] if (found := bisect.bisect_left(begins, end)) else silent for end in ends
    ]


def tokens_of_parts(
    parts: Sequence[str], tokenizer: Any, *, special: bool
) -> tuple[list[int], list[int]]:
    """(token ids of the joined parts, the last token of each part). `special`: the tokenizer adds
    its begin and end marks.

    A tokenizer that cannot say where its tokens stand (`is_fast` is false) is asked part by part.
    """
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer("".join(parts), add_special_tokens=special, return_offsets_mapping=True)
        return list(encoded["input_ids"]), last_tokens(
            step_ends(parts), [tuple(pair) for pair in encoded["offset_mapping"]]
        )
    ids: list[int] = (
        [tokenizer.bos_token_id] if special and tokenizer.bos_token_id is not None else []
    )
    last: list[int] = []
    for part in parts:
        ids += tokenizer(part, add_special_tokens=False)["input_ids"]
        last.append(len(ids) - 1)
    return ids, last

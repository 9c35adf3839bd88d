"""Scores of a response's steps -> rewards of its tokens, and the response's whole reward.

A step ends at a character of the text, and the policy wrote tokens: the step's value falls on the
token that completes its last character. Tokens are decoded in blocks, and one by one only in the
blocks where a step ends.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rmrl.types import Ragged, Response, Step

Decode = Callable[[Sequence[int]], str]

_BLOCK_TOKENS = 32
_UNFINISHED = "\ufffd"
_LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8, at most, and so the tokens it may be spread over."""


def step_token_rewards(
    steps: Sequence[Sequence[Step]], responses: Sequence[Response], decode: Decode
) -> Ragged:
    """Token rewards in float32, lengths T: each step's value stands on the token where the step
    ends, 0 elsewhere.

    `steps` has a row for each response; `decode` turns token ids into text as `Response.text` was
    made (special tokens skipped). Steps that end on one token add up; a step that ends behind the
    last token's text counts at the last token; a response without tokens takes none. Each token is
    decoded a bounded number of times.
    """
    return Ragged.of(
        [_place(row, response, decode) for row, response in zip(steps, responses, strict=True)],
        np.float32,
    )


def rewards_with_steps(rewards_B: np.ndarray, steps: Sequence[Sequence[Step]]) -> np.ndarray:
    """Each response's reward plus the sum of its steps' values, float64 [B]: what sequence-level
    estimators compare.

    `steps` holds weighted values, a row for each response, or is empty where no reward scores
    steps. NaN stays NaN: a response without a reward has no whole reward either. Numbers are
    rounded to float32 first, as the estimators get them. Not discounted.
    """
    totals_B = rewards_B.astype(np.float32).astype(np.float64)
    if not steps:
        return totals_B
    rounded = [np.asarray([step.value for step in row], dtype=np.float32) for row in steps]
    return totals_B + np.asarray([row.sum(dtype=np.float64) for row in rounded])


def end_tokens(
    token_ids: Sequence[int], ends: Sequence[int], decode: Decode, *, text: str | None = None
) -> list[int]:
    """The token that completes each place `ends`, counted in characters of what the tokens decode
    to; the last one behind their text.

    `text`: the places are counted in this part of it instead, such as the text without the white
    space it began with.
    """
    blocks = _blocks(token_ids, decode)
    lost = 0 if text is None else max("".join(block.text for block in blocks).find(text), 0)
    lengths = [block.length + len(block.text) for block in blocks]
    found: list[int] = []
    for end in ends:
        at = bisect.bisect_left(lengths, end + lost)
        found.append(
            _in_block(blocks[at], end + lost, token_ids, decode)
            if at < len(blocks)
            else len(token_ids) - 1
        )
    return found


@dataclass(frozen=True, slots=True)
class _Block:
    """The tokens `start` .. `stop` - 1. They are decoded behind the block before them, from
    `behind`, as `known` characters are of it.

    Some tokenizers drop the space of a first token, so that a token alone does not decode to its
    share of the text.
    """

    behind: int
    start: int
    stop: int
    known: int
    length: int
    """Characters of all blocks before."""
    text: str


def _blocks(token_ids: Sequence[int], decode: Decode) -> list[_Block]:
    """Blocks that end with a finished character: byte-level tokens hold parts of one."""
    blocks: list[_Block] = []
    behind = start = length = 0
    while start < len(token_ids):
        known = len(decode(token_ids[behind:start])) if start else 0
        stop = min(start + _BLOCK_TOKENS, len(token_ids))
        latest = min(
            stop + _LONGEST_CHARACTER - 1, len(token_ids)
        )  # what is unfinished there will never be a character
        while (seen := decode(token_ids[behind:stop])).endswith(_UNFINISHED) and stop < latest:
            stop += 1
        blocks.append(_Block(behind, start, stop, known, length, seen[known:]))
        length += len(seen) - known
        behind = start
        start = stop
    return blocks


def _in_block(block: _Block, end: int, token_ids: Sequence[int], decode: Decode) -> int:
    """The first token of the block with which `end` characters are there; an unfinished one does
    not count."""

    def characters(token: int) -> int:
        return (
            block.length
            + len(decode(token_ids[block.behind : token + 1]).rstrip(_UNFINISHED))
            - block.known
        )

    return bisect.bisect_left(range(block.start, block.stop - 1), end, key=characters) + block.start


def _place(steps: Sequence[Step], response: Response, decode: Decode) -> np.ndarray:
    rewards = np.zeros(len(response.token_ids))
    if steps and len(rewards):
        tokens = end_tokens(
            response.token_ids, [step.end for step in steps], decode, text=response.text
        )
        np.add.at(rewards, tokens, [step.value for step in steps])
    return rewards

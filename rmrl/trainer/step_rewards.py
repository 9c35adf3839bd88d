"""Rewards of a response's tokens from its steps' scores, and the whole reward.

A step ends at a character of the text, and the policy wrote tokens: the step's value falls on the
token that completes its last character. Tokens are decoded in blocks, and one by one only in the
blocks where a step ends. A turn's score falls on the last token that the policy sampled there.
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
    """Return token rewards in float32, lengths T: each step's value on the token where the step
    ends, 0 elsewhere.

    `steps` has a row for each response. `decode` turns token ids into text as `Response.text` was
    made (special tokens skipped). With several turns that is the last one's text. Steps that end
    on one token add up. A step that ends behind the last token's text counts at the last token.
    Responses without tokens take none, nor do turns that somebody else wrote. Each token is decoded
    a bounded number of times.
    """
    rows: list[np.ndarray] = []
    for row, response in zip(steps, responses, strict=True):
        rewards = np.zeros(len(response.token_ids))
        parts = [step for step in row if step.turn is None]
        spans = _spans(response)
        if parts and spans:
            start, stop = spans[max(spans)]
            ends = [step.end for step in parts]
            ids = response.token_ids[start:stop].tolist()
            tokens = end_tokens(ids, ends, decode, text=response.text)
            np.add.at(rewards, np.asarray(tokens) + start, [step.value for step in parts])
        for step in row:
            if step.turn is not None and step.turn in spans:
                rewards[spans[step.turn][1] - 1] += step.value
        rows.append(rewards)
    return Ragged.of(rows, np.float32)


def _spans(response: Response) -> dict[int, tuple[int, int]]:
    """Return where each turn that rewards read begins and ends among the tokens."""
    count = len(response.token_ids)
    if count and not response.turns:
        return {0: (0, count)}
    return {
        turn.number: (turn.start, turn.end) for turn in response.turns if turn.number is not None
    }


def rewards_with_steps(rewards_B: np.ndarray, steps: Sequence[Sequence[Step]]) -> np.ndarray:
    """Return each response's reward plus the sum of its steps' values, float64 [B], for
    sequence-level estimators.

    `steps` holds weighted values, a row for each response, or is empty where no reward scores
    steps. NaN stays NaN: a response without a reward has no whole reward either. Numbers are
    rounded to float32 first, as the estimators get them. Not discounted.
    """
    totals_B = rewards_B.astype(np.float32).astype(np.float64)
    if not steps:
        return totals_B
    sums: list[float] = []
    for row in steps:
        values = np.asarray([step.value for step in row], dtype=np.float32)
        sums.append(values.sum(dtype=np.float64))
    return totals_B + np.asarray(sums)


def end_tokens(
    token_ids: Sequence[int], ends: Sequence[int], decode: Decode, *, text: str | None = None
) -> list[int]:
    """Return the token that completes each place `ends`, counted in characters of the tokens'
    text; the last token for places behind that text.

    `text`: the places are counted in this part of it instead, such as the text without its leading
    white space.
    """
    blocks = _blocks(token_ids, decode)
    offset = 0
    if text is not None:
        offset = max("".join(block.text for block in blocks).find(text), 0)
    lengths = [block.length + len(block.text) for block in blocks]
    tokens: list[int] = []
    for end in ends:
        number = bisect.bisect_left(lengths, end + offset)
        if number < len(blocks):
            tokens.append(blocks[number].completing_token(end + offset, token_ids, decode))
        else:
            tokens.append(len(token_ids) - 1)
    return tokens


@dataclass(frozen=True, slots=True)
class _Block:
    """The tokens `start` .. `stop` - 1. They are decoded behind the block before them, from
    `behind`. The first `known` characters of that text belong to the block before.

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

    def completing_token(self, end: int, token_ids: Sequence[int], decode: Decode) -> int:
        """Return the first token of the block that completes `end` characters. An unfinished one
        does not count."""

        def characters(token: int) -> int:
            text = decode(token_ids[self.behind : token + 1]).rstrip(_UNFINISHED)
            return self.length + len(text) - self.known

        tokens = range(self.start, self.stop - 1)
        return bisect.bisect_left(tokens, end, key=characters) + self.start


def _blocks(token_ids: Sequence[int], decode: Decode) -> list[_Block]:
    """Return blocks that end with a finished character: byte-level tokens hold parts of one."""
    blocks: list[_Block] = []
    behind = 0
    start = 0
    length = 0
    while start < len(token_ids):
        prefix = len(decode(token_ids[behind:start])) if start else 0
        stop = min(start + _BLOCK_TOKENS, len(token_ids))
        # Characters that are unfinished there will never be finished.
        latest = min(stop + _LONGEST_CHARACTER - 1, len(token_ids))
        decoded = decode(token_ids[behind:stop])
        while decoded.endswith(_UNFINISHED) and stop < latest:
            stop += 1
            decoded = decode(token_ids[behind:stop])
        blocks.append(_Block(behind, start, stop, prefix, length, decoded[prefix:]))
        length += len(decoded) - prefix
        behind = start
        start = stop
    return blocks

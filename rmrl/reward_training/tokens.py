"""Examples -> tokens, read as kind `bradley_terry` will read the same texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmrl.config.schema import RewardDataConfig
from rmrl.errors import DataError
from rmrl.reward_training.example import Example
from rmrl.reward_training.labelled_batch import Item
from rmrl.reward_training.objectives.objective import Objective
from rmrl.rewards.kinds.bradley_terry.reward import conversations
from rmrl.rewards.kinds.shared.tokenizing import tokenize_all
from rmrl.rewards.kinds.shared.untrusted import neutraliser
from rmrl.types import ScoreItem

_CHUNK = 512
"""Examples per call of the tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenized:
    """Items that fit, and those that did not."""

    items: list[Item]
    dropped: list[int]
    """The examples that were left out."""
    cut: list[int]
    """The examples whose prompt lost its start."""
    lengths: list[int]
    """Tokens of every response with its prompt, before anything was dropped or cut."""


def tokenized(
    examples: Sequence[Example],
    tokenizer: Any,
    objective: Objective,
    data: RewardDataConfig,
) -> Tokenized:
    """Return the examples as tokens; what does not fit is treated as `data.overlong` says. Raises
    DataError with `overlong=error` where there is such a row."""
    neutral = neutraliser(tokenizer)
    result = Tokenized(items=[], dropped=[], cut=[], lengths=[])
    for start in range(0, len(examples), _CHUNK):
        chunk = examples[start : start + _CHUNK]
        reads: list[Any] = []
        for example in chunk:
            reads += conversations(score_items(example), tokenizer, neutral)
        rendered = tokenize_all(
            reads, tokenizer, generation_prompt=False, where="the training data"
        )
        rows = iter(rendered)
        for number, example in enumerate(chunk, start):
            tokens = [np.asarray(next(rows).token_ids, np.int32) for _ in example.responses]
            _add(result, number, example, tokens, objective=objective, data=data)
    return result


def score_items(example: Example) -> list[ScoreItem]:
    """Return the responses as a reward sees them."""
    return [
        ScoreItem(prompt_id=example.place, messages=(), response=response, rm_prompt=example.prompt)
        for response in example.responses
    ]


def _add(
    result: Tokenized,
    number: int,
    example: Example,
    tokens: list[np.ndarray],
    *,
    objective: Objective,
    data: RewardDataConfig,
) -> None:
    """Add one example, unless it does not fit."""
    lengths = list(map(len, tokens))
    result.lengths.extend(lengths)
    excess = max(lengths) - data.max_length
    # A response keeps one token at least, also where it is the start of another.
    shortest = min(lengths) - 1
    same = np.logical_and.reduce([row[:shortest] == tokens[0][:shortest] for row in tokens])
    shared = max(int(np.logical_and.accumulate(same).sum()), min(1, shortest))
    if excess > 0:
        if data.overlong == "error":
            raise DataError(
                f"{example.place}: {max(lengths)} tokens, more than"
                f" data.max_length={data.max_length}; raise it, or take data.overlong=drop or cut"
            )
        if data.overlong == "drop" or excess >= shared:
            result.dropped.append(number)
            return
        tokens = [row[excess:] for row in tokens]
        shared -= excess
        result.cut.append(number)
    if shared < 1:
        result.dropped.append(number)
        return
    reads: list[np.ndarray] = []
    for row in tokens:
        read = np.zeros(len(row) - shared, bool)
        read[-1] = True
        reads.append(read)
    result.items.append(
        Item(
            number=number,
            tokens=tuple(tokens),
            shared=shared,
            reads=tuple(reads),
            targets=objective.targets(example),
        )
    )

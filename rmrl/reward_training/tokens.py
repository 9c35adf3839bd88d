"""Examples -> tokens, as the reward will read the same texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmrl.config.schema import RewardDataConfig
from rmrl.errors import DataError
from rmrl.reward_training.example import Example
from rmrl.reward_training.labelled_batch import Item, batch_of
from rmrl.reward_training.objectives.objective import Objective
from rmrl.reward_training.readings.reading import Row
from rmrl.telemetry.progress import LINE_EVERY_S, counting

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
    unlabelled: list[int]
    """The examples that teach nothing, such as a list with ties alone, or a pair with the same text
    twice. They are left out."""
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
    reading = objective.reading
    result = Tokenized(items=[], dropped=[], cut=[], unlabelled=[], lengths=[])
    total = len(examples)
    with counting("tokenized", total, unit="rows", log_every_s=LINE_EVERY_S) as update:
        for start in range(0, total, _CHUNK):
            chunk = examples[start : start + _CHUNK]
            for number, rows in enumerate(reading.rows(chunk, tokenizer), start):
                _add(result, number, examples[number], rows, objective=objective, data=data)
            update(start + len(chunk))
    return result


def _add(
    result: Tokenized,
    number: int,
    example: Example,
    rows: Sequence[Row],
    *,
    objective: Objective,
    data: RewardDataConfig,
) -> None:
    """Add one example, unless it does not fit."""
    tokens = [row.tokens for row in rows]
    lengths = list(map(len, tokens))
    result.lengths.extend(lengths)
    excess = max(lengths) - data.max_length
    # What is read belongs to a response, also where that is the start of another.
    shortest = min(min(row.positions) for row in rows)
    same = np.logical_and.reduce([row[:shortest] == tokens[0][:shortest] for row in tokens])
    shared = max(int(np.logical_and.accumulate(same).sum()), min(1, shortest))
    removed = 0
    if excess > 0:
        if data.overlong == "error":
            raise DataError(
                f"{example.place}: {max(lengths)} tokens, more than"
                f" data.max_length={data.max_length}; raise it, or take data.overlong=drop or cut"
            )
        if data.overlong == "drop" or excess >= shared:
            result.dropped.append(number)
            return
        removed = excess
        result.cut.append(number)
    if shared < 1:
        result.dropped.append(number)
        return
    reads: list[np.ndarray] = []
    for row in rows:
        read = np.zeros(len(row.tokens) - shared, bool)
        read[np.asarray(row.positions) - shared] = True
        reads.append(read)
    item = Item(
        number=number,
        tokens=tuple(each[removed:] for each in tokens),
        shared=shared - removed,
        reads=tuple(reads),
        targets=objective.targets(example),
    )
    if objective.weight(batch_of([item])) and not example.all_alike:
        result.items.append(item)
    else:
        result.unlabelled.append(number)

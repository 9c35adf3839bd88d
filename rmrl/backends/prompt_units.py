"""A batch's rows as units: responses to one prompt that are computed as one sequence
(rmrl.models.shared_prompts). Pure arithmetic, numpy only.

A unit is a prompt followed by its responses. Its length is the prompt's plus all responses'. Units
are padded to a micro-batch's longest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmrl.backends.micro_batches import Limits, cut
from rmrl.types import Ragged, TrainBatch

PADDING = -1
"""Segment of padding, which only padding attends to."""
LONGEST = 8192
"""Longest unit of several responses, in tokens. The mask of attention has its square (64 MiB)."""
_LAYER_KEYS = 5
"""Matrices of a decoder layer cost a token as much as attending to this times the hidden size keys:
2 * 10.5 H^2 against 4 H operations for each key in layers of Llama's shape."""
_KEYS_OF_ROW = 0.5
"""Share of a row's keys that a causal kernel computes."""
_KEYS_OF_UNIT = 1.5
"""The same with a mask, which is computed whole and read beside it. Single timings of the backward
pass at width 576 on a CPU gave 1.1, 1.3, 1.4 and 3.5."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """When responses share a prompt: where it costs less than computing it again for each."""

    hidden: int
    """Hidden size of the model."""
    limit: int | None
    """Longest unit of several responses, in tokens."""

    def cost(self, count: int, length: int, *, masked: bool) -> float:
        """Return what `count` sequences padded to `length` cost, in keys."""
        share = _KEYS_OF_UNIT if masked else _KEYS_OF_ROW
        return count * length * (_LAYER_KEYS * self.hidden + share * length)

    def joins(self, length: int, prompt: int, response: int) -> bool:
        """Return whether a response costs less in a unit with `length` tokens than as a row."""
        joined = length + response
        if joined > min(self.limit or LONGEST, LONGEST):
            return False
        more = self.cost(1, joined, masked=True) - self.cost(1, length, masked=True)
        return more < self.cost(1, prompt + response, masked=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """A micro-batch in units, U of them, as arrays for the model."""

    tokens_US: np.ndarray
    segments_US: np.ndarray
    """0 for the prompt, the number of the response from 1, or PADDING."""
    position_ids_US: np.ndarray
    positions_N: np.ndarray
    """Index into the flattened [U * S] of the token before each response token, row by row."""
    own_positions_N: np.ndarray
    """The same for each response token itself."""


def units_of(batch: TrainBatch, sharing: Sharing) -> list[np.ndarray]:
    """Return each unit's rows, ordered by their first rows."""
    open_unit: dict[bytes, int] = {}
    units: list[list[int]] = []
    lengths: list[int] = []
    for row, tokens in enumerate(batch.tokens.rows()):
        response = int(batch.response_mask.lengths[row])
        prompt = tokens[: len(tokens) - response]
        unit = open_unit.get(prompt.tobytes())
        if unit is not None and sharing.joins(lengths[unit], len(prompt), response):
            units[unit].append(row)
            lengths[unit] += response
        else:
            open_unit[prompt.tobytes()] = len(units)
            units.append([row])
            lengths.append(len(tokens))
    return [np.asarray(rows, dtype=np.int64) for rows in units]


def computed_rows(
    batch: TrainBatch, *, with_responses: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that the model must compute, and each row's place among these.

    A response with one token is read before it, so rows with the same prompt and such a response
    are computed once. Not `with_responses`, where the response's tokens are read themselves.
    """
    places: dict[bytes | int, int] = {}
    index: list[int] = []
    place_B: list[int] = []
    for row, tokens in enumerate(batch.tokens.rows()):
        single = not with_responses and batch.response_mask.lengths[row] == 1
        key = tokens[:-1].tobytes() if single else row
        if key not in places:
            places[key] = len(index)
            index.append(row)
        place_B.append(places[key])
    return np.asarray(index, np.int64), np.asarray(place_B, np.int64)


def length_of(batch: TrainBatch, unit: np.ndarray) -> int:
    """Return a unit's tokens."""
    responses = batch.response_mask.lengths[unit]
    return int(batch.tokens.lengths[unit[0]] - responses[0] + responses.sum())


def cut_units(batch: TrainBatch, limits: Limits, sharing: Sharing) -> list[np.ndarray]:
    """Return each micro-batch's row numbers, longest units first. Whole rows instead of units where
    these cost less, since a long unit pads short ones."""
    units = units_of(batch, sharing)
    lengths = np.asarray([length_of(batch, unit) for unit in units])
    together = cut(lengths, limits)
    apart = cut(batch.tokens.lengths, limits)
    cost_together = sum(
        sharing.cost(len(index), int(lengths[index].max()), masked=True) for index in together
    )
    cost_apart = 0.0
    for index in apart:
        longest = int(batch.tokens.lengths[index].max())
        cost_apart += sharing.cost(len(index), longest, masked=False)
    if cost_together >= cost_apart:
        return apart
    micros: list[np.ndarray] = []
    for index in together:
        # In the order of the batch `units_of` finds the same units again.
        micros.append(np.concatenate([units[unit] for unit in sorted(index.tolist())]))
    return micros


def arrays_of(batch: TrainBatch, sharing: Sharing, *, with_responses: bool = False) -> Units | None:
    """Return a micro-batch from `cut_units` as arrays, None where padded `computed_rows` cost no
    more."""
    units = units_of(batch, sharing)
    width = max(length_of(batch, unit) for unit in units)
    rows_apart, _ = computed_rows(batch, with_responses=with_responses)
    cost_apart = sharing.cost(len(rows_apart), int(batch.tokens.lengths.max()), masked=False)
    if sharing.cost(len(units), width, masked=True) >= cost_apart:
        return None
    shape = (len(units), width)
    tokens_US = np.zeros(shape, np.int64)
    segments_US = np.full(shape, PADDING, np.int64)
    position_ids_US = np.zeros(shape, np.int64)
    before: list[np.ndarray] = [np.zeros(0, np.int64)] * len(batch)
    own = list(before)
    rows = batch.tokens.rows()
    for number, unit in enumerate(units):
        prompt = len(rows[unit[0]]) - int(batch.response_mask.lengths[unit[0]])
        tokens_US[number, :prompt] = rows[unit[0]][:prompt]
        segments_US[number, :prompt] = 0
        position_ids_US[number, :prompt] = np.arange(prompt)
        start = prompt
        for segment, row in enumerate(unit.tolist(), start=1):
            response = rows[row][prompt:]
            end = start + len(response)
            tokens_US[number, start:end] = response
            segments_US[number, start:end] = segment
            position_ids_US[number, start:end] = prompt + np.arange(len(response))
            previous = np.arange(start, end) - 1
            previous[0] = prompt - 1
            before[row] = number * width + previous
            own[row] = number * width + np.arange(start, end)
            start = end
    return Units(
        tokens_US=tokens_US,
        segments_US=segments_US,
        position_ids_US=position_ids_US,
        positions_N=Ragged.of(before, np.int64).values,
        own_positions_N=Ragged.of(own, np.int64).values,
    )

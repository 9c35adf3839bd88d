"""Rows that train a reward model, with what they are trained to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmrl.types import Ragged, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledBatch(TrainBatch):
    """A row is one response behind its prompt. A response token counts where the model's output is
    read. Responses that are compared are one item, whose rows stand together.

    Shape legend: R rows    N tokens that are read, row by row    n the head's outputs
    """

    items: Ragged
    """The item's number, one per row."""
    targets: Ragged
    """Numbers that the row is trained to, as its objective reads them."""

    STREAMS = (*TrainBatch.STREAMS, "items", "targets")

    @property
    def items_R(self) -> np.ndarray:
        """Each row's item, int64."""
        return self.items.values.astype(np.int64)

    @property
    def reads_R(self) -> np.ndarray:
        """How many tokens are read in each row. 0 in a row that only keeps processes in step."""
        return np.asarray([int((row > 0).sum()) for row in self.loss_mask.rows()], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An example as tokens."""

    number: int
    """Place among the examples."""
    tokens: tuple[np.ndarray, ...]
    """int32, each response behind the prompt."""
    shared: int
    """Tokens at the start that all responses have in common, at least 1."""
    reads: tuple[np.ndarray, ...]
    """bool, per token behind the shared ones: where the output is read."""
    targets: tuple[tuple[float, ...], ...]
    """As in `LabelledBatch`, per response."""

    @property
    def padded_tokens(self) -> int:
        """The rows' tokens, padded to the longest."""
        return len(self.tokens) * max(map(len, self.tokens))


def batch_of(items: Sequence[Item]) -> LabelledBatch:
    """Return the items' rows, in order."""
    rows: list[np.ndarray] = []
    reads: list[np.ndarray] = []
    targets: list[tuple[float, ...]] = []
    numbers: list[list[int]] = []
    for item in items:
        rows += item.tokens
        reads += item.reads
        targets += item.targets
        numbers += [[item.number]] * len(item.tokens)
    return LabelledBatch(
        tokens=Ragged.of(rows, np.int64),
        response_mask=Ragged.of(list(map(np.ones_like, reads)), np.float32),
        kept_mask=Ragged.of(reads, np.float32),
        items=Ragged.of(numbers, np.int64),
        targets=Ragged.of(targets, np.float32),
    )

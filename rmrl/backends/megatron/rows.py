"""One process's input from a micro-batch's rows: padded or packed, and under context parallelism
its chunks from every row.

Under context parallelism with C processes each row is cut into 2C equally long chunks and process c
gets chunks c and 2C-1-c, so that under a causal mask all have equal work. A result per response
token is computed in the process with the position before the token.

Shapes: B rows    S padded row length (packed: of all rows together)    N response tokens of
all rows, flat and row by row    n those of them that this process computes; at least 1, see
`Rows.positions_n`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rmrl.backends.megatron.attention import zigzag
from rmrl.backends.objective import to_device
from rmrl.backends.own_tokens import own_tokens
from rmrl.types import Ragged, TrainBatch

FILLING_TOKENS = 1024
"""A filling row's maximum length, where the longest row is shorter. Attention computes row by
row, and the micro-batch of a process that has none of its own is two tokens and filling: in rows as
long as its longest one these would be thousands of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout that micro-batches share in one pass through the pipeline."""

    packed: bool
    multiple: int = 1
    """Every row is padded to a multiple of it; one of 2 * context."""
    context: int = 1
    """Processes that share every row."""
    context_rank: int = 0
    length: int | None = None
    """Packed: pad all rows together to this many tokens, a multiple of `multiple`. None: as long as
    they are."""

    def of_length(self, length: int) -> Layout:
        """Return this layout with a common length."""
        return replace(self, length=length)

    def packed_length(self, batch: TrainBatch) -> int:
        """The packed rows' tokens, before padding to `length`."""
        return int(_up(batch.tokens.lengths, self.multiple).sum())

    def padded_lengths(self, sizes_B: np.ndarray) -> list[int]:
        """Padded lengths for rows with `sizes_B` tokens, and for the filling rows that make up
        `length`."""
        lengths_B = _up(sizes_B, self.multiple)
        longest = int(lengths_B.max())
        if not self.packed:
            return [longest] * len(sizes_B)
        missing = 0 if self.length is None else self.length - int(lengths_B.sum())
        assert missing >= 0, "a micro-batch is longer than the common length"
        limit = max(longest, int(_up(np.asarray(FILLING_TOKENS), self.multiple)))
        filling = [min(limit, missing - start) for start in range(0, missing, limit)]
        return [*lengths_B.tolist(), *filling]

    def own_positions(self, lengths: Sequence[int]) -> np.ndarray | None:
        """This process's positions in rows with `lengths` laid one behind the other. None: all."""
        if self.context == 1:
            return None
        rows: list[np.ndarray] = []
        start = 0
        for length in lengths:
            positions = zigzag(length, size=self.context, rank=self.context_rank)
            rows.append(start + positions.numpy())
            start += length
        return np.concatenate(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """One micro-batch as input for this process's model."""

    input_ids_BS: Tensor
    """Under context parallelism S / C of each row."""
    position_ids_BS: Tensor
    boundaries: Tensor | None
    """Packed: where rows begin and the last one ends, int32 on the device, counted before rows are
    cut into chunks. None: padded."""
    lengths: list[int]
    """Padded lengths of the rows, those of filling included, before they are cut into chunks."""
    positions_n: Tensor
    """In the flattened `input_ids_BS`: the position before each response token of this process. A
    process without any has one all the same, for it must take part in the backward pass."""
    targets_n: Tensor
    index_n: Tensor | None
    """Place of these tokens among all N (fewer than n: the rest is of no use). None: they are all
    N, in order."""
    size: int
    """N."""


def lay_out(batch: TrainBatch, layout: Layout, device: torch.device) -> Rows:
    """Lay out a micro-batch for this process. Every row in `batch` needs at least one prompt token,
    and `batch` at least one response token."""
    sizes_B = batch.tokens.lengths
    responses_B = batch.response_mask.lengths
    assert (sizes_B > responses_B).all(), (
        "a row without a prompt token: its first response token has no probability"
    )
    lengths = layout.padded_lengths(sizes_B)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    flat = np.zeros(starts[-1], np.int64)
    # Behind the last row there may be filling.
    for start, row in zip(starts, batch.tokens.rows(), strict=False):
        flat[start : start + len(row)] = row
    within = np.concatenate(list(map(np.arange, lengths)))
    before: list[np.ndarray] = [
        start + size - n - 1 + np.arange(n)
        for start, size, n in zip(starts, sizes_B, responses_B, strict=False)
    ]
    positions_N = Ragged.of(before, np.int64).values
    local = layout.own_positions(lengths)
    positions_n, targets_n, index_n = own_tokens(
        positions_N, flat[positions_N + 1], local, len(flat)
    )
    if local is not None:
        flat = flat[local]
        within = within[local]
    shape = (1, -1) if layout.packed else (len(sizes_B), -1)
    return Rows(
        input_ids_BS=to_device(flat.reshape(shape), device),
        position_ids_BS=to_device(within.reshape(shape), device),
        boundaries=to_device(starts.astype(np.int32), device) if layout.packed else None,
        lengths=lengths,
        positions_n=to_device(positions_n, device),
        targets_n=to_device(targets_n, device),
        index_n=None if index_n is None else to_device(index_n, device),
        size=len(positions_N),
    )


def _up(lengths: np.ndarray, multiple: int) -> np.ndarray:
    return -(-lengths // multiple) * multiple

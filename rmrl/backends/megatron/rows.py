"""How the rows of a micro-batch become one process's input: padded or packed, and under context
parallelism its chunks of every row.

Under context parallelism of C processes each row is cut into 2C chunks of one length and process c
holds chunks c and 2C-1-c, so that under a causal mask all have as much to do. Whatever is computed
per response token is computed where the position before it lies.

Shapes: B rows    S padded length of a row (packed: of all rows together)    N response tokens of
  all rows, flat and row by row
        n those of them that this process computes; at least 1, see `Rows.positions_n`
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rmrl.backends.megatron.attention import zigzag
from rmrl.backends.objective import to_device
from rmrl.types import Ragged, TrainBatch

FILLING_TOKENS = 1024
"""Of a row of filling, at most, where the longest row is shorter. Attention goes row by row, and
the micro-batch of a process that has none of its own is two tokens and filling: rows of its longest
one would be thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What the micro-batches of one pass through the pipeline have in common."""

    packed: bool
    multiple: int = 1
    """Every row is padded to a multiple of it; one of 2 * context."""
    context: int = 1
    """Processes that share every row."""
    context_rank: int = 0
    length: int | None = None
    """Packed: pad all rows together to this many tokens, a multiple of `multiple`; None: as long as
    they are."""

    def of_length(self, length: int) -> Layout:
        """The same with a common length."""
        return replace(self, length=length)

    def packed_length(self, batch: TrainBatch) -> int:
        """Tokens of the packed rows, before the padding to `length`."""
        return int(_up(batch.tokens.lengths, self.multiple).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """One micro-batch as this process's model takes it."""

    input_ids_BS: Tensor
    """Under context parallelism S / C of each row."""
    position_ids_BS: Tensor
    boundaries: Tensor | None
    """Packed: where rows begin and the last one ends, int32 on the device, counted before rows are
    cut into chunks. None: padded."""
    longest: int
    """Padded length of the longest row, one of filling included, before it is cut into chunks."""
    positions_n: Tensor
    """In the flattened `input_ids_BS`: the position before each response token of this process. A
    process without any has one all the same, for it must take part in the backward pass."""
    targets_n: Tensor
    index_n: Tensor | None
    """Place of these tokens among all N (fewer than n: the rest is of no use); None: they are all
    N, in order."""
    size: int
    """N."""


def lay_out(batch: TrainBatch, layout: Layout, device: torch.device) -> Rows:
    """Every row of `batch` needs at least one prompt token, and `batch` at least one response
    token."""
    sizes_B, responses_B = batch.tokens.lengths, batch.response_mask.lengths
    assert (sizes_B > responses_B).all(), (
        "a row without a prompt token: its first response token has no probability"
    )
    lengths = _row_lengths(sizes_B, layout)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    flat = np.zeros(starts[-1], np.int64)
    for start, row in zip(
        starts, batch.tokens.rows(), strict=False
    ):  # behind the last row there may be filling
        flat[start : start + len(row)] = row
    within = np.concatenate([np.arange(length) for length in lengths])
    before = [
        start + size - n - 1 + np.arange(n)
        for start, size, n in zip(starts, sizes_B, responses_B, strict=False)
    ]
    positions_N = Ragged.of(before, np.int64).values
    held, shape = _held(starts, lengths, layout), (1, -1) if layout.packed else (len(sizes_B), -1)
    positions_n, targets_n, index_n = _own(positions_N, flat[positions_N + 1], held, len(flat))
    return Rows(
        input_ids_BS=to_device((flat if held is None else flat[held]).reshape(shape), device),
        position_ids_BS=to_device(
            (within if held is None else within[held]).reshape(shape), device
        ),
        boundaries=to_device(starts.astype(np.int32), device) if layout.packed else None,
        longest=max(lengths),
        positions_n=to_device(positions_n, device),
        targets_n=to_device(targets_n, device),
        index_n=None if index_n is None else to_device(index_n, device),
        size=len(positions_N),
    )


def _row_lengths(sizes_B: np.ndarray, layout: Layout) -> list[int]:
    """Padded lengths of the rows, and of rows of filling that make up `layout.length`."""
    lengths_B = _up(sizes_B, layout.multiple)
    longest = int(lengths_B.max())
    if not layout.packed:
        return [longest] * len(sizes_B)
    missing = 0 if layout.length is None else layout.length - int(lengths_B.sum())
    assert missing >= 0, "a micro-batch is longer than the common length"
    most = max(longest, int(_up(np.asarray(FILLING_TOKENS), layout.multiple)))
    filling = [min(most, missing - start) for start in range(0, missing, most)]
    return [*lengths_B.tolist(), *filling]


def _up(lengths: np.ndarray, multiple: int) -> np.ndarray:
    return -(-lengths // multiple) * multiple


def _held(starts: np.ndarray, lengths: list[int], layout: Layout) -> np.ndarray | None:
    """Which of all positions, flat, this process holds; None: all."""
    if layout.context == 1:
        return None
    return np.concatenate(
        [
            start + zigzag(length, size=layout.context, rank=layout.context_rank).numpy()
            for start, length in zip(starts, lengths, strict=False)  # the last start is the end
        ]
    )


def _own(
    positions_N: np.ndarray, targets_N: np.ndarray, held: np.ndarray | None, total: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(positions among those held, targets, places among all N); see `Rows`."""
    if held is None:
        return positions_N, targets_N, None
    place_among_held = np.full(total, -1, np.int64)
    place_among_held[held] = np.arange(len(held))
    places_N = place_among_held[positions_N]
    index_n = np.flatnonzero(places_N >= 0)
    if not len(index_n):
        return np.zeros(1, np.int64), np.zeros(1, np.int64), index_n
    return places_N[index_n], targets_N[index_n], index_n

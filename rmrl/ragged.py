"""Rows with different lengths in two arrays; `rmrl.types` has the shapes that are named in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows with different lengths as one flat array plus lengths; pickles as two buffers.

    `values` has shape [sum(lengths)], `lengths` has shape [B] (int64).

    Example:
        >>> rows = Ragged.of([[1, 2, 3], [4]], np.int64)
        >>> rows.padded().tolist()
        [[1, 2, 3], [4, 0, 0]]
        >>> rows.select([1]).values.tolist()
        [4]
    """

    values: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, rows: Iterable[Sequence[float] | np.ndarray], dtype: Any) -> Ragged:
        """Build from rows; `dtype` is a numpy dtype such as np.int64 or np.float32."""
        arrays = [np.asarray(row, dtype=dtype).reshape(-1) for row in rows]
        flat = np.concatenate(arrays) if arrays else np.zeros(0, dtype)
        return cls(flat, np.fromiter(map(len, arrays), np.int64, len(arrays)))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def offsets(self) -> np.ndarray:
        """Each row's start in `values`, shape [B]."""
        starts = np.zeros(len(self), np.int64)
        np.cumsum(self.lengths[:-1], out=starts[1:])
        return starts

    def rows(self) -> list[np.ndarray]:
        """Return views into the rows, in order."""
        return np.split(self.values, np.cumsum(self.lengths)[:-1]) if len(self) else []

    def select(self, index: Sequence[int] | np.ndarray) -> Ragged:
        """Return the rows at `index`, in that order."""
        rows = self.rows()
        return Ragged.of([rows[int(i)] for i in index], self.values.dtype)

    def joined(self, counts: np.ndarray) -> Ragged:
        """Return rows in which `counts[b]` neighbouring rows, at least one, are joined."""
        lengths = [int(part.sum()) for part in np.split(self.lengths, np.cumsum(counts)[:-1])]
        return Ragged(self.values, np.asarray(lengths[: len(counts)], np.int64))

    def padded(self, fill: float = 0, width: int | None = None) -> np.ndarray:
        """Return a right-padded copy [B, width] (default width: the longest row)."""
        width = int(self.lengths.max(initial=0)) if width is None else width
        out = np.full((len(self), width), fill, dtype=self.values.dtype)
        out[np.arange(width)[None, :] < self.lengths[:, None]] = self.values
        return out

    @classmethod
    def from_padded(cls, padded: np.ndarray, lengths: np.ndarray) -> Ragged:
        """Build from padded rows, which undoes `padded`: row b has `lengths[b]` entries."""
        keep = np.arange(padded.shape[1])[None, :] < np.asarray(lengths)[:, None]
        return cls(padded[keep], np.asarray(lengths, dtype=np.int64))

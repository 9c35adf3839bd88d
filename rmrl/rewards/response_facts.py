"""Facts about the responses, besides their scores, for transforms, weights and combiners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmrl.types import ScoreItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """One entry per response, shape [B]. Groups need be neither contiguous nor of equal size."""

    group_ids_B: np.ndarray
    """int64: responses of one prompt share a number."""
    lengths_B: np.ndarray
    """int64: response tokens."""
    truncated_B: np.ndarray
    """bool: the response was cut at the token limit."""
    sources: tuple[str, ...]
    """`data_source` of each response."""

    @classmethod
    def of(cls, items: Sequence[ScoreItem]) -> Rows:
        """Build from the inputs of any one component."""
        groups: list[int] = []
        lengths: list[int] = []
        truncated: list[bool] = []
        sources: list[str] = []
        for item in items:
            groups.append(item.group)
            lengths.append(item.response_tokens)
            truncated.append(item.finish_reason == "length")
            sources.append(item.data_source)
        return cls(
            group_ids_B=np.asarray(groups, dtype=np.int64),
            lengths_B=np.asarray(lengths, dtype=np.int64),
            truncated_B=np.asarray(truncated, dtype=bool),
            sources=tuple(sources),
        )

    def __len__(self) -> int:
        return len(self.sources)

    def select(self, index: Sequence[int] | np.ndarray) -> Rows:
        """Return the rows at `index` (positions, not a mask), in that order."""
        picked = np.asarray(index, dtype=np.int64)
        return Rows(
            group_ids_B=self.group_ids_B[picked],
            lengths_B=self.lengths_B[picked],
            truncated_B=self.truncated_B[picked],
            sources=tuple(self.sources[int(i)] for i in picked),
        )

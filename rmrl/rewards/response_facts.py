"""Facts about the responses, besides their scores, for transforms, weights and combiners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class WithFacts(Protocol):
    """A row, or a component's input that was made from it."""

    @property
    def group(self) -> int: ...
    @property
    def response_tokens(self) -> int: ...
    @property
    def finish_reason(self) -> str: ...
    @property
    def data_source(self) -> str: ...


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
    def of(cls, responses: Sequence[WithFacts]) -> Rows:
        """Build from rows, or from any one component's inputs."""
        return cls(
            group_ids_B=np.asarray([each.group for each in responses], dtype=np.int64),
            lengths_B=np.asarray([each.response_tokens for each in responses], dtype=np.int64),
            truncated_B=np.asarray(
                [each.finish_reason == "length" for each in responses], dtype=bool
            ),
            sources=tuple([each.data_source for each in responses]),
        )

    @classmethod
    def joined(cls, batches: Sequence[Rows]) -> Rows:
        """Return several batches as one. Their groups stay different."""
        groups: list[np.ndarray] = []
        first = 0
        for rows in batches:
            groups.append(rows.group_ids_B + first)
            first += 1 + int(rows.group_ids_B.max(initial=-1))
        return cls(
            group_ids_B=np.concatenate(groups),
            lengths_B=np.concatenate([rows.lengths_B for rows in batches]),
            truncated_B=np.concatenate([rows.truncated_B for rows in batches]),
            sources=tuple([source for rows in batches for source in rows.sources]),
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

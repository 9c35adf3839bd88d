"""rank: the place of a score among those of its group, 0 for the lowest and 1 for the highest.

Rows that tie share the average of their places, so [3, 7, 7, 9] becomes [0, 0.5, 0.5, 1]. A
constant group, or one of a single row, gives 0.5. Scores whose neighbours differ only by rounding
(`ties.rounding_floor`) tie: noise has no order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmrl.config.schema.fields import choice
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.transforms.ties import consecutive, largest_of_group, refined, rounding_floor


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    by: str = choice("group", among=("group", "batch"))
    """Among the responses of one prompt (group) or all of the step (batch)."""

    example = "{kind: rank, by: group}"
    per_value = False

    @property
    def compares(self) -> str:
        """The rows whose scores decide a result: `by`."""
        return self.by

    def problems(self) -> list[str]:
        return []

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        if not len(values_N):
            return np.zeros(0)
        group_N = np.zeros(len(values_N), dtype=np.int64)
        if self.by == "group":
            group_N = consecutive(rows.group_ids_B)
        tolerance_N = rounding_floor(largest_of_group(np.abs(values_N), group_N))
        class_N = refined(group_N, values_N, tolerance_N)
        count_N = np.bincount(group_N)[group_N]
        # Both averages are of places in one order by (group, score), so their difference is the
        # distance from the group's middle.
        from_middle_N = _average_place(class_N) - _average_place(group_N)
        return 0.5 + from_middle_N / np.maximum(count_N - 1, 1)


def _average_place(class_N: np.ndarray) -> np.ndarray:
    """Average place of each row's class when rows are sorted by class, [N]."""
    size = np.bincount(class_N)
    return (np.cumsum(size) - (size + 1) / 2)[class_N]

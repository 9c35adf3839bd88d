"""scale: factor * score + offset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmrl.rewards.response_facts import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    factor: float = 1.0
    """Multiplies the score. A negative one inverts it."""
    offset: float = 0.0
    """Added afterwards."""

    example = "{kind: scale, factor: 0.1, offset: -1}"
    per_value = True

    def problems(self) -> list[str]:
        if self.factor == 0:
            return ["factor=0: every score would be the offset; give another factor"]
        return []

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        del rows
        return self.factor * values_N + self.offset

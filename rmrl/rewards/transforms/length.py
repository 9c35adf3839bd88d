"""length: score - per_token * max(0, L - target), L being the response's tokens. At most `at_most`
is taken off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmrl.config.schema.fields import not_negative, positive
from rmrl.rewards.response_facts import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPenalty:
    target: int = not_negative()
    """Response tokens that cost nothing."""
    per_token: float = positive()
    """Taken off for each token above the target."""
    at_most: float | None = positive(None)
    """Largest penalty. null: no bound."""

    example = "{kind: length, target: 512, per_token: 0.001, at_most: 0.5}"
    per_value = False
    compares = ""
    reads_length = True

    def problems(self) -> list[str]:
        return []

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        penalty_N = self.per_token * np.maximum(rows.lengths_B - self.target, 0)
        return values_N - np.minimum(penalty_N, np.inf if self.at_most is None else self.at_most)

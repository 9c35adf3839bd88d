"""clip: scores outside [low, high] become its nearer end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmrl.rewards.response_facts import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    low: float | None = None
    """Smallest score. null: no bound."""
    high: float | None = None
    """Largest score. null: no bound."""

    example = "{kind: clip, low: -1, high: 1}"
    per_value = True

    def problems(self) -> list[str]:
        if self.low is None and self.high is None:
            return [f"low and .high are both missing: give at least one, e.g. {self.example}"]
        if self.low is not None and self.high is not None and self.low >= self.high:
            return [f"low={self.low:g} is not below high={self.high:g}: give low < high"]
        return []

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        del rows
        return np.clip(values_N, self.low, self.high)

"""sigmoid: 1 / (1 + exp(-(score - center) / temperature)), in 0..1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmrl.config.schema.fields import positive
from rmrl.rewards.response_facts import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Sigmoid:
    center: float = 0.0
    """The score that becomes 0.5."""
    temperature: float = positive(1.0)
    """Larger is flatter; in units of the score."""

    example = "{kind: sigmoid, center: 0, temperature: 2}"
    per_value = True

    def problems(self) -> list[str]:
        return []

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        del rows
        # exp of minus the size never overflows, on either side of the center.
        x_N = (values_N - self.center) / self.temperature
        small_N = np.exp(-np.abs(x_N))
        return np.where(x_N >= 0, 1.0, small_N) / (1.0 + small_N)

"""overlong: the soft overlong punishment of DAPO (arXiv:2503.14476, equation 13), added to the
score.

With L response tokens, L_max = max_length and L_cache = buffer:

    score + penalty * p(L),    p(L) = 0                                  L <= L_max - L_cache
                                      ((L_max - L_cache) - L) / L_cache  up to L_max
                                      -1                                 L > L_max

Departure: `penalty` scales it (the paper has 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmrl.config.schema.fields import positive
from rmrl.rewards.response_facts import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlong:
    max_length: int
    """Response tokens from which on the whole penalty is due."""
    buffer: int
    """Tokens before max_length over which it grows from 0."""
    penalty: float = positive(1.0)
    """Taken off the score where a response has max_length."""

    example = "{kind: overlong, max_length: 4096, buffer: 512}"
    per_value = False
    compares = ""
    reads_length = True

    def problems(self) -> list[str]:
        if 0 < self.buffer <= self.max_length:
            return []
        return [
            f"buffer={self.buffer} with max_length={self.max_length}: give at least 1 token and at"
            " most max_length"
        ]

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        free = self.max_length - self.buffer
        return values_N + self.penalty * np.clip((free - rows.lengths_B) / self.buffer, -1.0, 0.0)

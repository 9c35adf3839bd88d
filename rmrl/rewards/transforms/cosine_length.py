"""cosine_length: a correct response earns more the shorter it is, a wrong one loses less the longer
it tried.

Cosine reward of "Demystifying Long Chain-of-Thought Reasoning in LLMs" (arXiv:2502.03373). With L
response tokens and T = max_length:

    r(L) = long + (short - long) * (1 + cos(pi * L / T)) / 2       short at L = 0, long at L = T

with `correct_short`, `correct_long` where the score is above `correct_above` and `wrong_short`,
`wrong_long` elsewhere. A response of max_length or more, or cut at the token limit, gets
`exceeded`. The result replaces the score.

Departure: the defaults have size 1 (the paper's wrong values are up to ten times its correct ones).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmrl.config.schema.fields import positive
from rmrl.rewards.response_facts import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CosineLength:
    max_length: int = positive()
    """Response tokens at which the curve ends."""
    correct_above: float = 0.5
    """Scores greater than this count as correct."""
    correct_short: float = 1.0
    """For a correct response of 0 tokens."""
    correct_long: float = 0.5
    """For a correct response just below max_length."""
    wrong_short: float = -1.0
    """For a wrong response of 0 tokens."""
    wrong_long: float = -0.5
    """For a wrong response just below max_length."""
    exceeded: float = -1.0
    """For a response that reached max_length or was cut."""

    example = "{kind: cosine_length, max_length: 4096}"
    per_value = False
    compares = ""
    reads_length = True

    def problems(self) -> list[str]:
        worst_correct = min(self.correct_short, self.correct_long)
        best_wrong = max(self.wrong_short, self.wrong_long, self.exceeded)
        if worst_correct > best_wrong:
            return []
        return [
            f"correct_short={self.correct_short:g}, correct_long={self.correct_long:g}: both must"
            " be greater than wrong_short, wrong_long and exceeded, or a wrong response could earn"
            " more than a correct one"
        ]

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        correct_N = values_N > self.correct_above
        short_N = np.where(correct_N, self.correct_short, self.wrong_short)
        long_N = np.where(correct_N, self.correct_long, self.wrong_long)
        share_N = np.minimum(rows.lengths_B / self.max_length, 1.0)
        curve_N = long_N + (short_N - long_N) * (1 + np.cos(np.pi * share_N)) / 2
        exceeded_N = (rows.lengths_B >= self.max_length) | rows.truncated_B
        return np.where(exceeded_N, self.exceeded, curve_N)

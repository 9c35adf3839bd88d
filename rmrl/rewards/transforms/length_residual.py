"""length_residual: the score without the part that a straight line on the response's length
explains, x = log(1 + tokens):

    score' = score - b (x - mean of x),   b = max(1 - (EVIDENCE / t)^2, 0) cov(x, score) / var(x)

t being the slope of the line in standard errors: a slope that may as well be 0 is not subtracted
(the positive-part shrinkage of James and Stein for one coordinate, with a larger bound), and a
clear one loses little. x is taken at most as far out as the lengths seen so far. So the mean of the
scores stays, and at equal length nothing changes. The line is learnt over all rows so far (with
`decay`, mostly the last ones), the present batch included, and kept in the checkpoint. Whoever
judges a policy by such scores asks what an answer is worth beside its length, as length-controlled
win rates do for a judge's preferences (Dubois et al., Length-Controlled AlpacaEval, 2024); reward
models are treated alike in Huang et al., Post-hoc Reward Calibration: A Case Study on Length Bias
(2024), who fit the bias locally on tokens. The logarithm makes the line robust against single long
responses.

A batch of n rows joins the count, means, variances and covariance with the share a = n / (count +
n), never below 1 - decay:
    mean' = mean + a d,   cov' = (1 - a) cov + a cov_n + a (1 - a) d_x d_y,   d = mean_n - mean
which without decay is exact for the union of both (Chan, Golub, LeVeque 1983).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmrl.config.schema.fields import at_least
from rmrl.errors import CheckpointError
from rmrl.rewards.response_facts import Rows

EVIDENCE = 2.0
"""Standard errors from which a slope is believed."""
_RIDGE = 1e-9
"""Lengths that are equal up to rounding explain nothing."""


@dataclass(frozen=True, slots=True)
class LineMoments:
    """Count, means, population variance of x, and covariance of x and y."""

    count: float = 0.0
    mean_x: float = 0.0
    mean_y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0
    weight: float = 0.0
    """Rows that the moments are worth: fewer than `count` where the past fades."""
    low: float = 0.0
    high: float = 0.0
    """Smallest and largest x."""

    def joined(self, x_N: np.ndarray, y_N: np.ndarray, *, decay: float | None) -> LineMoments:
        """Return the moments of these rows and a batch's. See the module's equations."""
        if not len(x_N):
            return self
        count = self.count + len(x_N)
        share = max(len(x_N) / count, 0.0 if decay is None else 1.0 - decay)
        weight = float(len(x_N))
        low = float(x_N.min())
        high = float(x_N.max())
        if self.count:
            low = min(low, self.low)
            high = max(high, self.high)
            # Independent rows: weights add up to the inverse of the sum of squared shares.
            weight = 1 / ((1 - share) ** 2 / self.weight + share**2 / len(x_N))
        dx = float(x_N.mean()) - self.mean_x
        dy = float(y_N.mean()) - self.mean_y
        of_batch = float(((x_N - x_N.mean()) * (y_N - y_N.mean())).mean())
        return LineMoments(
            count,
            self.mean_x + share * dx,
            self.mean_y + share * dy,
            (1 - share) * self.xx + share * float(x_N.var()) + share * (1 - share) * dx * dx,
            (1 - share) * self.xy + share * of_batch + share * (1 - share) * dx * dy,
            (1 - share) * self.yy + share * float(y_N.var()) + share * (1 - share) * dy * dy,
            weight,
            low,
            high,
        )

    @property
    def slope(self) -> float:
        """b of the module's equations."""
        if self.xx <= _RIDGE or self.weight <= 2:
            return 0.0
        slope = self.xy / self.xx
        # var(b) = residual variance / (n var(x)), the residuals having n - 2 degrees of freedom
        residual = max(self.yy - slope * self.xy, 0.0)
        one_over_t2 = residual / max(slope * self.xy * (self.weight - 2), 1e-300)
        return max(1 - EVIDENCE**2 * one_over_t2, 0.0) * slope


@dataclass(kw_only=True)
class LengthResidual:
    decay: float | None = 0.99
    """Share of the past that a batch leaves standing. null: every row counts alike."""
    from_rows: int = at_least(256, least=2)
    """Rows from which the line is subtracted; before, scores stay as they are."""

    example = "{kind: length_residual, decay: 0.99}"
    per_value = False
    compares = "running"
    reads_length = True

    def __post_init__(self) -> None:
        self._moments = LineMoments()

    def problems(self) -> list[str]:
        if self.decay is not None and not 0 < self.decay < 1:
            return [f"decay={self.decay:g}: give a share between 0 and 1, e.g. 0.99"]
        return []

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        if self._moments.count < self.from_rows:
            return values_N
        x_N = np.log1p(rows.lengths_B)
        x_N = np.clip(x_N, self._moments.low, self._moments.high)
        return values_N - self._moments.slope * (x_N - self._moments.mean_x)

    def observe(self, values_N: np.ndarray, rows: Rows) -> None:
        """Join a batch to the line. Scores that are not finite have no part in it."""
        finite_N = np.isfinite(values_N)
        x_N = np.log1p(rows.lengths_B)[finite_N]
        self._moments = self._moments.joined(x_N, values_N[finite_N], decay=self.decay)

    def state_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self._moments)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`. Raises CheckpointError where the numbers are not those of a
        state."""
        numbers: dict[str, float] = {}
        try:
            for field in dataclasses.fields(LineMoments):
                numbers[field.name] = float(state[field.name])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the line of length_residual in the checkpoint is torn: {dict(state)!r}; start"
                " from another one"
            ) from error
        self._moments = LineMoments(**numbers)

"""Trends of step means: whether the reward rises while a watcher falls.

The slope of a straight line through the means of the last steps is compared with its own standard
error, taken from how the means scatter about that line. So whatever makes a step's mean uncertain
(few rows, prompts of different difficulty) makes the evidence weaker. Means are weighted by the
number of rows behind them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

STRETCHES = (8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of last steps through which a line is drawn."""
LONGEST = STRETCHES[-1]
"""Steps that are remembered."""


@dataclass(frozen=True, slots=True)
class Slope:
    """A straight line through step means."""

    per_step: float
    evidence: float
    """The slope in standard errors: the normal quantile of its t statistic, signed; see
    `normal_quantile`."""

    @classmethod
    def of(cls, steps: Sequence[float], means: Sequence[float], rows: Sequence[float]) -> Slope:
        """Weighted least squares. With weights w and deviations from the weighted means

            b = sum w x y / sum w x^2,   se(b)^2 = sum w (y - b x)^2 / ((n - 2) sum w x^2)

        At least three steps that are not all the same. A constant has the slope 0 without evidence.
        """
        w = np.asarray(rows, dtype=np.float64)
        x = np.asarray(steps, dtype=np.float64)
        y = np.asarray(means, dtype=np.float64)
        x = x - np.average(x, weights=w)
        y = y - np.average(y, weights=w)
        xx = float((w * x * x).sum())
        slope = float((w * x * y).sum()) / xx
        residual = float((w * (y - slope * x) ** 2).sum())
        freedom = len(x) - 2
        # What is left of a constant is rounding.
        if float((w * y * y).sum()) <= 1e-18 * float((w * np.square(means)).sum()):
            return cls(0.0, 0.0)
        if residual == 0:
            return cls(slope, math.copysign(math.inf, slope))
        t = slope / math.sqrt(residual / freedom / xx)
        return cls(slope, normal_quantile(t, freedom))


def normal_quantile(t: float, freedom: int) -> float:
    """Return z so that a standard normal exceeds z about as often as Student's t with `freedom`
    degrees exceeds t:

        z = (8 n + 1) / (8 n + 3) sqrt(n ln(1 + t^2 / n)),   with the sign of t

    (Wallace, Bounds on normal approximations to Student's and the chi-square distributions, 1959.)
    With few steps a t of 4 is no rare event, and its z is smaller.
    """
    factor = (8 * freedom + 1) / (8 * freedom + 3)
    return math.copysign(factor * math.sqrt(freedom * math.log1p(t * t / freedom)), t)


@dataclass(slots=True)
class Opposition:
    """Step means of the reward and of one watcher, at the steps in which it was asked."""

    steps: list[tuple[int, float, int, float, int]] = field(default_factory=list)
    """Step, the reward's mean and rows, the watcher's mean and rows; the last LONGEST ones."""

    def add(self, step: int, rewards: np.ndarray, verdicts: np.ndarray) -> None:
        """Remember a step with at least one number each."""
        both = (float(rewards.mean()), len(rewards), float(verdicts.mean()), len(verdicts))
        self.steps = [*self.steps, (step, *both)][-LONGEST:]

    def found(self, evidence: float) -> tuple[int, Slope, Slope] | None:
        """Return the shortest of STRETCHES over which the reward rises and the watcher falls, both
        by that many standard errors: its length and both slopes."""
        for count in STRETCHES:
            if count > len(self.steps):
                break
            steps, means, rows, watched, verdicts = zip(*self.steps[-count:], strict=True)
            rising = Slope.of(steps, means, rows)
            falling = Slope.of(steps, watched, verdicts)
            if rising.evidence > evidence and falling.evidence < -evidence:
                return count, rising, falling
        return None

"""Trends of step means: whether the reward rises while a watcher falls.

Straight lines through the last steps' means are compared with what the noise of the means draws by
itself. That noise is not white: prompts with the same difficulty follow one another, and a policy
that wandered off stays there for a while. So a line's residuals u are taken as u_t = rho u_{t-1} +
e_t, and rho as large as the residuals allow:

    rho = (n r_1 + 2) / (n - 4),   plus TIMES_ITS_ERROR * sqrt((1 - rho^2) / n),   at most 1

where r_1 is the residuals' correlation from one step to the next. A fitted line makes r_1 too small
by about (2 + 4 rho) / n. With rho = 1 the means are a random walk. The slope's variance is then

    b = sum x y / sum x^2,   var(b) = s^2 sum_k (sum_{t >= k} rho^(t-k) x_t)^2 / (sum x^2)^2

where x is centred and s^2 is the variance of e. A sudden fall is no straight line, and its own
residuals follow one another for that reason alone. Where there are enough steps before the fall,
rho comes from a line through these steps, and s^2 is the larger one of both. Means are weighted by
the number of rows behind them.

This asks for much: a policy that gives in to its reward loses quality fast at first and slowly
later. What such a curve leaves of a straight line looks like noise that stays. But there is a
second witness. Under selection by the reward r, a response quality q moves by

    E(q') - E(q) = cov(w(r), q)

where w, the response's relative frequency after the update, rises with r (Price, Selection and
covariance, 1970). So the lines have a witness where, among responses in the same step, more reward
goes with less q, by AGAINST standard errors of their correlation over the last RECENT steps.
Training on r is then expected to make q fall, and the noise about both lines is taken as white (rho
= 0).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

STRETCHES = (8, 16, 32, 64)
"""Numbers of last steps through which a line is drawn."""
LONGEST = 128
"""Steps that are remembered."""
EVIDENCE = 3.5
"""Standard errors by which both slopes are clear of 0."""
TIMES_ITS_ERROR = 3.0
AGAINST = 4.0
"""Standard errors by which the correlation within steps is below 0."""
RECENT = 16
"""Last steps over which that correlation is taken."""
_OWN_NOISE_FROM = 16
"""Steps in a line from which its own residuals say how large the noise is."""
_BEFORE_FROM = 12
"""Steps before a line from which their residuals say how large the noise is."""
_CONSTANT_SPREAD = 1e-9
"""Share of the largest value. A smaller spread is rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A straight line by weighted least squares through at least 8 step means."""

    slope: float
    x_N: np.ndarray
    """Centred steps, times the square roots of the weights."""
    residual_N: np.ndarray
    """The means' residuals from the line, times the square roots of the weights."""

    @classmethod
    def through(cls, steps: Sequence[Sequence[float]], column: int) -> Line:
        """`steps`: each step's number, which differs from the others, and in `column` and behind it
        a mean and its rows. A constant's residuals are exactly 0."""
        table = np.asarray(steps, dtype=np.float64)
        x, means, w = table[:, 0], table[:, column], table[:, column + 1]
        x = x - float(w @ x) / float(w.sum())
        y = means - float(w @ means) / float(w.sum())
        # What is left of a constant is rounding.
        if float((w * y * y).sum()) <= 1e-18 * float((w * np.square(means)).sum()):
            y = np.zeros_like(y)
        slope = float((w * x * y).sum()) / float((w * x * x).sum())
        return cls(slope, np.sqrt(w) * x, np.sqrt(w) * (y - slope * x))

    @property
    def persistence(self) -> float:
        """Return rho from the module's equations, 0 .. 1."""
        u = self.residual_N
        n = len(u)
        squares = float((u * u).sum())
        if squares == 0:
            return 0.0
        rho = (n * float((u[1:] * u[:-1]).sum()) / squares + 2) / (n - 4)
        rho = min(max(rho, 0.0), 1.0)
        return min(rho + TIMES_ITS_ERROR * math.sqrt((1 - rho * rho) / n), 1.0)

    def innovation(self, rho: float) -> float:
        """Return s^2 from the module's equations."""
        e = self.residual_N[1:] - rho * self.residual_N[:-1]
        return float((e * e).sum()) / (len(self.residual_N) - 3)

    def evidence(self, *, before: Line | None = None, white: bool = False) -> float:
        """Return the slope in standard errors: the normal quantile of its t statistic, signed
        (`normal_quantile`). Return 0 for a constant, and infinity without any noise. The noise is
        the line's own, or that of the line through the steps before. `white`: the line's own noise,
        with rho = 0."""
        if self.slope == 0:
            return 0.0
        n = len(self.x_N)
        freedom = n - 3
        if before is None:
            rho = 0.0 if white else self.persistence
            variance = self.innovation(rho)
        else:
            rho = before.persistence
            variance = max(before.innovation(rho), self.innovation(rho))
            freedom += len(before.x_N) - 3
        tail = 0.0
        tails = 0.0
        for x in self.x_N[:0:-1]:
            tail = float(x) + rho * tail
            tails += tail * tail
        # The first residual has the variance of all of them; that of a random walk is the level.
        tail = float(self.x_N[0]) + rho * tail
        tails += tail * tail * min(1 / (1 - rho * rho) if rho < 1 else n, n)
        error = math.sqrt(variance * tails) / float((self.x_N * self.x_N).sum())
        if error == 0:
            return math.copysign(math.inf, self.slope)
        return normal_quantile(self.slope / error, freedom)


def normal_quantile(t: float, freedom: int) -> float:
    """Return z so that a standard normal exceeds z about as often as Student's t with `freedom`
    degrees exceeds t:

        z = (8 n + 1) / (8 n + 3) sqrt(n ln(1 + t^2 / n)),   with the sign of t

    (Wallace, Bounds on normal approximations to Student's and the chi-square distributions, 1959.)
    With few steps a t of 4 is no rare event, and its z is smaller.
    """
    factor = (8 * freedom + 1) / (8 * freedom + 3)
    return math.copysign(factor * math.sqrt(freedom * math.log1p(t * t / freedom)), t)


@dataclass(frozen=True, slots=True)
class Opposed:
    """The reward rises and the watcher falls."""

    count: int
    """Number of last steps in the lines."""
    rising: float
    """Slope of the reward's line, per step."""
    falling: float
    """Slope of the watcher's line, per step."""
    correlation: float | None
    """Correlation of reward and verdict within steps, where the correlation is part of the
    evidence."""


@dataclass(slots=True)
class Opposition:
    """Step means of the reward and one watcher, at the steps in which the watcher was asked, and
    their correlation within these steps."""

    steps: list[tuple[float, ...]] = field(default_factory=list)
    """The last LONGEST steps. Each has its number, the reward's mean and rows, and the watcher's
    mean and rows. For the rows with both it has their number less 1, and the centred sums xx, yy
    and xy of reward and verdict."""

    def add(
        self,
        step: int,
        rewards: np.ndarray,
        verdicts: np.ndarray,
        *,
        both_N2: np.ndarray | None = None,
    ) -> None:
        """Remember a step with at least one number each. `both_N2`: reward and verdict on the rows
        that have both."""
        moments = (0, 0.0, 0.0, 0.0)
        if both_N2 is not None and len(both_N2) > 1:
            spread = np.ptp(both_N2, axis=0)
            # What is left of a constant is rounding.
            if (spread > _CONSTANT_SPREAD * np.abs(both_N2).max(axis=0)).all():
                x, y = (both_N2 - both_N2.mean(axis=0)).T
                moments = (len(x) - 1, float(x @ x), float(y @ y), float(x @ y))
        means = (float(rewards.mean()), len(rewards), float(verdicts.mean()), len(verdicts))
        self.steps = [*self.steps, (step, *means, *moments)][-LONGEST:]

    def against(self) -> float | None:
        """Return the correlation of reward and verdict within the last RECENT steps if it is below
        0 by AGAINST standard errors. (Fisher: atanh(r) has the standard error 1 / sqrt(n - 2),
        where n is the rows less one for each step.)"""
        n, xx, yy, xy = np.sum([step[5:] for step in self.steps[-RECENT:]], axis=0)
        if n < 4 or xx == 0 or yy == 0:
            return None
        r = max(-1.0, min(1.0, float(xy) / math.sqrt(xx * yy)))
        z = -math.inf if r == -1 else math.atanh(min(r, 0.0)) * math.sqrt(n - 2)
        return r if z < -AGAINST else None

    def found(self, evidence: float = EVIDENCE) -> Opposed | None:
        """Return the shortest stretch in STRETCHES over which the reward rises and the watcher
        falls. Both must be clear by that many standard errors of one noise: each line's own, that
        of the steps before, or white noise where the reward goes `against` the watcher within
        steps."""
        for count in STRETCHES:
            if count > len(self.steps):
                break
            slopes: list[float] = []
            stays = True
            white = True
            # The watcher first: where it does not fall, the reward needs no line.
            for column, sign in ((3, -1), (1, 1)):
                line = Line.through(self.steps[-count:], column)
                if sign * line.slope <= 0:
                    break
                of_noise = [0.0]
                if count >= _OWN_NOISE_FROM:
                    of_noise.append(sign * line.evidence())
                if len(self.steps) - count >= _BEFORE_FROM:
                    before = Line.through(self.steps[:-count], column)
                    of_noise.append(sign * line.evidence(before=before))
                stays = stays and max(of_noise) > evidence
                white = white and sign * line.evidence(white=True) > evidence
                if not stays and not white:
                    break
                slopes.append(line.slope)
            if len(slopes) == 2 and stays:
                return Opposed(count, slopes[1], slopes[0], None)
            correlation = self.against() if len(slopes) == 2 else None
            if correlation is not None:
                return Opposed(count, slopes[1], slopes[0], correlation)
        return None

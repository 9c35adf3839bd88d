"""standardize: (score - mean) / (std + eps), by the response's group, by the batch, or by all
batches so far.

The std is unbiased (divides by N - 1), as in the advantage estimators. Scores that are constant up
to rounding (`ties.rounding_floor`), and a single score, give exactly 0: dividing rounding noise by
its own size would make +-1 of it.

`running` keeps count, mean and variance over all batches, the current one included. A batch of n
scores with mean m and variance v joins them with share a = n / (count + n):
    mean'     = mean + a * (m - mean)
    variance' = (1 - a) * variance + a * v + a * (1 - a) * (m - mean)^2
which is exact for the union of both (Chan, Golub, LeVeque 1983). With `decay` d the share never
falls below 1 - d, so old batches fade. The first batches are averaged plainly and no start value
leaks in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmrl.config.schema.fields import choice, not_negative
from rmrl.errors import CheckpointError
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.transforms.ties import consecutive, largest_of_group, rounding_floor


@dataclass(slots=True)
class RunningMoments:
    """Count, mean and population variance of all scores so far."""

    count: float = 0.0
    mean: float = 0.0
    variance: float = 0.0

    def joined(self, values_N: np.ndarray, *, decay: float | None) -> RunningMoments:
        """Return the moments of these scores and a batch's. See the module's equations."""
        if not len(values_N):
            return self
        count = self.count + len(values_N)
        share = max(len(values_N) / count, 0.0 if decay is None else 1.0 - decay)
        shift = float(values_N.mean()) - self.mean
        variance = (
            (1 - share) * self.variance
            + share * float(values_N.var())
            + share * (1 - share) * shift**2
        )
        return RunningMoments(count, self.mean + share * shift, variance)

    @property
    def std(self) -> float:
        """Unbiased standard deviation, 0 where it is only rounding, or of a single score."""
        if self.count < 2:
            return 0.0
        std = math.sqrt(self.variance * self.count / (self.count - 1))
        return std if std > rounding_floor(self.mean) else 0.0


@dataclass(kw_only=True)
class Standardize:
    by: str = choice(among=("batch", "group", "running"))
    """group (one prompt's responses), batch (all of the step) or running (all steps so far; kept
    in the checkpoint)."""
    eps: float = not_negative(1e-6)
    """Added to the std."""
    decay: float | None = None
    """running: share of the past that a batch leaves standing, e.g. 0.99. null: every score counts
    alike."""

    example = "{kind: standardize, by: group}"
    per_value = False

    @property
    def compares(self) -> str:
        """The rows whose scores decide a result: `by`."""
        return self.by

    def __post_init__(self) -> None:
        self._moments = RunningMoments()

    def problems(self) -> list[str]:
        problems: list[str] = []
        if self.decay is not None and self.by != "running":
            problems.append(
                f"decay={self.decay:g} belongs to by: running and has no effect on {self.by}: leave"
                " it out"
            )
        if self.decay is not None and not 0 < self.decay < 1:
            problems.append(f"decay={self.decay:g}: give a share between 0 and 1, e.g. 0.99")
        return problems

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        if self.by == "running":
            # Nothing learnt yet (validation before the first step): the batch's own statistics are
            # the best available ones.
            moments = self._moments
            if not moments.count:
                moments = RunningMoments().joined(values_N, decay=None)
            if moments.std == 0:
                return np.zeros(len(values_N))
            return (values_N - moments.mean) / (moments.std + self.eps)
        if not len(values_N):
            return np.zeros(0)
        group_N = np.zeros(len(values_N), dtype=np.int64)
        if self.by == "group":
            group_N = consecutive(rows.group_ids_B)
        # A sum of floats depends on its order: taken from the smallest up, it is the same to the
        # last bit in whatever order the rows come.
        order_N = np.lexsort((values_N, group_N))
        out_N = np.empty(len(values_N))
        out_N[order_N] = _by_group(values_N[order_N], group_N[order_N], self.eps)
        return out_N

    def observe(self, values_N: np.ndarray, rows: Rows) -> None:
        """Join a batch to the running statistics."""
        del rows
        if self.by == "running":
            self._moments = self._moments.joined(values_N, decay=self.decay)

    def state_dict(self) -> dict[str, Any]:
        if self.by != "running":
            return {}
        return {
            "count": self._moments.count,
            "mean": self._moments.mean,
            "variance": self._moments.variance,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`. Raises CheckpointError where the numbers are not those of a
        state."""
        try:
            numbers = [float(state[key]) for key in ("count", "mean", "variance")]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"running statistics in the checkpoint are torn: {dict(state)!r}; start from"
                " another one"
            ) from error
        self._moments = RunningMoments(*numbers)


def _by_group(values_N: np.ndarray, group_N: np.ndarray, eps: float) -> np.ndarray:
    """Standardize within groups. Rows come sorted by group, then by value."""
    count_N = np.bincount(group_N)[group_N]
    centred_N = values_N - np.bincount(group_N, weights=values_N)[group_N] / count_N
    floor_N = rounding_floor(largest_of_group(np.abs(values_N), group_N))
    constant_N = largest_of_group(np.abs(centred_N), group_N) <= floor_N
    centred_N = np.where(constant_N, 0.0, centred_N)
    squares_N = np.bincount(group_N, weights=centred_N**2)[group_N]
    std_N = np.sqrt(squares_N / np.maximum(count_N - 1, 1))
    return centred_N / np.where(constant_N, 1.0, std_N + eps)

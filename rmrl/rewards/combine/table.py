"""The combiners, and their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineInputs:
    """N rows, which all get a reward; C components, in the order of reward.models."""

    values_NC: np.ndarray
    """float64: transformed scores, 0 where not present."""
    weights_NC: np.ndarray
    """float64: weights per row, 0 where not present."""
    present_NC: np.ndarray
    """bool. False: the row lacks the component (gate closed, other source, passed over). Its value
    means nothing."""
    closed_NC: np.ndarray
    """bool: not present because a gate is closed, or because the scorer skipped a component that
    could not matter."""
    watched_NC: np.ndarray
    """bool: of weight 0 on this row. It is neither a term nor a factor nor a key of any
    combiner."""
    ops: tuple[str, ...]
    """fold: add or mul for each component."""
    group_ids_N: np.ndarray
    """int64: responses of one prompt share a number."""

    @property
    def counted_NC(self) -> np.ndarray:
        """bool: present, with a weight other than 0."""
        return self.present_NC & (self.weights_NC != 0)

    def select(self, rows_N: np.ndarray) -> CombineInputs:
        """Return some rows' inputs; `rows_N` is a mask, or positions."""
        return CombineInputs(
            values_NC=self.values_NC[rows_N],
            weights_NC=self.weights_NC[rows_N],
            present_NC=self.present_NC[rows_N],
            closed_NC=self.closed_NC[rows_N],
            watched_NC=self.watched_NC[rows_N],
            ops=self.ops,
            group_ids_N=self.group_ids_N[rows_N],
        )


class Combiner(Protocol):
    """float64 [N], finite. Pure."""

    def __call__(self, inputs: CombineInputs, *, settings: RewardConfig) -> np.ndarray: ...


COMBINERS: Registry[Combiner] = Registry(
    "reward.combine",
    {
        "weighted_sum": "rmrl.rewards.combine.sums:weighted_sum",
        "gate": "rmrl.rewards.combine.sums:weighted_sum",
        "fold": "rmrl.rewards.combine.sums:fold",
        "product": "rmrl.rewards.combine.product:product",
        "min": "rmrl.rewards.combine.extremes:smallest",
        "max": "rmrl.rewards.combine.extremes:largest",
        "soft_min": "rmrl.rewards.combine.soft_min:soft_min",
        "lexicographic": "rmrl.rewards.combine.lexicographic:lexicographic",
    },
)
"""`gate` is a sum: components behind a closed gate are absent already (`gates`)."""

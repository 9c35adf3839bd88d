"""Every group's best and worst response, from a finished job's rewards."""

# pyright: basic
# pyarrow ships no types.

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewards:
    """All responses' rewards F, in the order in which rows and their responses stand."""

    rewards_F: np.ndarray
    """float64. NaN: none."""
    rows_F: np.ndarray
    """int64: each response's row."""
    firsts_N: np.ndarray
    """int64: per row the place in F of its first response."""

    @classmethod
    def of_lists(cls, lists: pa.ListArray) -> Rewards:
        """From one reward list per row."""
        offsets = lists.offsets.to_numpy()
        return cls(
            rewards_F=lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64),
            rows_F=np.repeat(np.arange(len(lists)), np.diff(offsets)),
            firsts_N=offsets[:-1].astype(np.int64) - int(offsets[0]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Picks:
    """Places in F by group G, -1 where no response in the group has a reward.

    Among equal rewards the first response counts. A response without a reward is never picked.
    """

    best_G: np.ndarray
    worst_G: np.ndarray
    scored_G: np.ndarray
    """Number of responses with a reward."""
    tied: int
    """Number of groups in which several responses share the highest reward."""
    missing: int
    """Number of responses without a reward."""


def pick(rewards: Rewards, group_of_row_N: np.ndarray, *, groups: int) -> Picks:
    """Return the picks for groups 0 .. `groups` - 1."""
    rewards_F = rewards.rewards_F
    group_F = group_of_row_N[rewards.rows_F]
    has_reward_F = ~np.isnan(rewards_F)
    places = np.flatnonzero(has_reward_F)
    best_G = _first_of_groups(places, -rewards_F, group_F, groups)
    worst_G = _first_of_groups(places, rewards_F, group_F, groups)
    is_best = rewards_F[places] == rewards_F[best_G[group_F[places]]]
    sharing_G = np.bincount(group_F[places][is_best], minlength=groups)
    return Picks(
        best_G=best_G,
        worst_G=worst_G,
        scored_G=np.bincount(group_F[places], minlength=groups),
        tied=int((sharing_G > 1).sum()),
        missing=len(rewards_F) - len(places),
    )


def _first_of_groups(
    places: np.ndarray, keys_F: np.ndarray, group_F: np.ndarray, groups: int
) -> np.ndarray:
    """Return, per group, which of `places` has the smallest key, the first one among equals."""
    order = places[np.lexsort((places, keys_F[places], group_F[places]))]
    first_G = np.full(groups, -1, dtype=np.int64)
    present, positions = np.unique(group_F[order], return_index=True)
    first_G[present] = order[positions]
    return first_G

"""PF-PPO: responses whose rewards are reliable train more often (arXiv:2409.06957).

A reward model errs least where its scale ends, so the rows that train are drawn anew, with
replacement, as many as there were:

    pow         probability ~ abs(reward)^weight_pow
    max_min     half the draws the best row, half the worst
                (the paper's best-worst filter, BW)
    max_random  half the draws the best row, half any of the others
                (its best-random filter, BR)

Best and worst are taken within the row's group where groups are given, as in the paper, and each
group is drawn as often as it has rows. Without groups they are taken over the whole batch. Rows
that tie share their half. Where all rows are equal, every row is as likely. Equal means equal up to
rounding, as everywhere (`masking.rounding_floor`): equal scores added up in another order are a
tie. Departures: the paper keeps fixed row counts in each group, here they are drawn, so the batch
size stays. `pow` is not in the paper but is common in its implementations.
"""

from __future__ import annotations

import numpy as np
import torch

from rmrl.algorithms.groups import group_statistics
from rmrl.algorithms.masking import rounding_floor
from rmrl.config.schema.algorithm import PFPPOConfig
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

METHODS = ("pow", "max_min", "max_random")


def draw(
    rewards_B: np.ndarray,
    settings: PFPPOConfig,
    rng: np.random.Generator,
    *,
    group_ids_B: np.ndarray | None = None,
) -> np.ndarray:
    """Return int64 [B]: the rows to train on, in the order drawn, repeats included. `rewards_B` has
    no NaN. `group_ids_B` are any integers.

    Raises ConfigError for an unknown method and a negative exponent.
    """
    count = len(rewards_B)
    if not count:
        return np.zeros(0, dtype=np.int64)
    chances_B = probabilities(rewards_B, settings, group_ids_B=group_ids_B)
    return rng.choice(count, size=count, replace=True, p=chances_B).astype(np.int64)


def probabilities(
    rewards_B: np.ndarray, settings: PFPPOConfig, *, group_ids_B: np.ndarray | None = None
) -> np.ndarray:
    """Return each row's probability in each draw, float64 [B], summing to 1. Errors as for
    `draw`."""
    method = settings.reweight_method
    if method not in METHODS:
        raise ConfigError(
            "algorithm.pf_ppo.reweight_method: nothing named"
            f" '{method}'{did_you_mean(method, METHODS)}"
        )
    rewards_B = np.asarray(rewards_B, dtype=np.float64)
    if not len(rewards_B):
        return np.zeros(0)
    if method == "pow":
        return _by_power(rewards_B, settings.weight_pow)
    chances_B = np.zeros(len(rewards_B))
    if group_ids_B is None:
        group_ids_B = np.zeros(len(rewards_B))
    ids_B = np.asarray(group_ids_B, dtype=np.int64)
    statistics = group_statistics(torch.from_numpy(rewards_B), torch.from_numpy(ids_B))
    constant_B = statistics.constant_B.numpy()
    for number in np.unique(ids_B):
        rows = ids_B == number
        if constant_B[rows].all():
            chances_B[rows] = 1 / len(rows)
        else:
            rewards_N = rewards_B[rows]
            rounding = _rounding(rewards_N)
            best_N = rewards_N >= rewards_N.max() - rounding
            others_N = ~best_N
            if method == "max_min":
                others_N = rewards_N <= rewards_N.min() + rounding
            chances_N = 0.5 * best_N / best_N.sum() + 0.5 * others_N / others_N.sum()
            chances_B[rows] = rows.mean() * chances_N
    return chances_B / chances_B.sum()


def _by_power(rewards_B: np.ndarray, exponent: float) -> np.ndarray:
    if exponent < 0:
        raise ConfigError(
            f"algorithm.pf_ppo.weight_pow={exponent}: rewards near 0 would be drawn alone; use 0 or"
            " more, e.g. 2.0"
        )
    largest = np.abs(rewards_B).max()
    if largest <= _rounding(rewards_B):
        return np.full(len(rewards_B), 1 / len(rewards_B))
    weights_B = (np.abs(rewards_B) / largest) ** exponent  # in 0..1, so no exponent overflows
    return weights_B / weights_B.sum()


def _rounding(rewards_N: np.ndarray) -> float:
    return float(rounding_floor(torch.tensor(np.abs(rewards_N).max())))

"""soft_min: -(1/beta) log sum_c p_c exp(-beta s_c), where p_c = w_c / sum w: between the weighted
mean and the minimum.

The weights are shares, not factors: the reward stays on the scores' scale. beta -> 0 gives the
weighted mean, beta -> inf the smallest score among the components of positive weight, and small
beta the mean less beta/2 of the variance among the components, the uncertainty-weighted ensemble of
arXiv:2310.02743. It is also min_q (E_q[s] + KL(q || p) / beta): the mean under the least favourable
weighting near the given one. With equal weights this is -(1/beta) log mean exp(-beta s).
"""

from __future__ import annotations

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.errors import ConfigError
from rmrl.rewards.combine.table import CombineInputs

_MEAN_BELOW = 1e-200
"""Largest beta * distance below which the result is the mean: they differ by less than that share
of it, and smaller products would lose their digits."""


def soft_min(inputs: CombineInputs, *, settings: RewardConfig) -> np.ndarray:
    """beta is reward.soft_min_beta (>= 0; 0 is the weighted mean). A row left with no component
    gets 0.

    Raises ConfigError for negative weights, which are no shares.
    """
    if (inputs.weights_NC < 0).any():
        raise ConfigError(
            "reward.combine=soft_min with a negative weight: its weights are shares of a mean; "
            "turn the score round instead, e.g. transform: {kind: scale, factor: -1}"
        )
    counted_NC = inputs.counted_NC
    beta = settings.soft_min_beta
    total_N = inputs.weights_NC.sum(axis=1)
    shares_NC = inputs.weights_NC / np.where(total_N > 0, total_N, 1.0)[:, None]
    lowest_N = np.where(counted_NC, inputs.values_NC, np.inf).min(axis=1, initial=np.inf)
    lowest_N = np.where(counted_NC.any(axis=1), lowest_N, 0.0)
    above_NC = np.where(counted_NC, inputs.values_NC - lowest_N[:, None], 0.0)
    mean_N = lowest_N + (shares_NC * above_NC).sum(axis=1)
    if beta == 0:
        return mean_N
    # -(1/beta) log sum p exp(-beta d) for distances d >= 0 from the minimum, one of which is 0: no
    # overflow, and never log 0.
    near_N = (shares_NC * np.expm1(-beta * above_NC)).sum(axis=1)
    far_N = (shares_NC * np.exp(-beta * above_NC)).sum(axis=1)
    # log1p keeps the digits where the sum is close to 1, log where it is close to 0.
    with np.errstate(divide="ignore"):
        logs_N = np.where(near_N > -0.5, np.log1p(np.maximum(near_N, -0.5)), np.log(far_N))
    reward_N = lowest_N + np.where(shares_NC.any(axis=1), -logs_N / beta, 0.0)
    return np.where(beta * above_NC.max(axis=1, initial=0.0) < _MEAN_BELOW, mean_N, reward_N)

"""weighted_sum (and gate), fold: terms w * s that are added up, or multiplied in between."""

from __future__ import annotations

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.rewards.combine.table import CombineInputs


def weighted_sum(inputs: CombineInputs, *, settings: RewardConfig) -> np.ndarray:
    """sum_c w_c * s_c, with the weights as they were given; 0 where a row lacks every component."""
    del settings
    return np.where(inputs.present_NC, inputs.values_NC * inputs.weights_NC, 0.0).sum(axis=1)


def fold(inputs: CombineInputs, *, settings: RewardConfig) -> np.ndarray:
    """Per component in order: add: total + w * s; mul: total * w * s. Starts from 0, so a leading
    `mul` gives 0.

    A component with weight 0 is passed over as if it were not configured, whatever its operation.
    One that a row lacks is passed over too. Where that leaves nothing to multiply, the first one
    present starts the total: 0 * s would make a missing verdict a number. Behind a closed gate,
    though, there is a number: nothing, and what multiplies it stays 0.
    """
    del settings
    total_N = np.zeros(len(inputs.values_NC))
    started_N = np.zeros(len(total_N), dtype=bool)
    lacks_N = np.zeros(len(total_N), dtype=bool)
    for c, op in enumerate(inputs.ops):
        watched_N = inputs.watched_NC[:, c]
        present_N = inputs.present_NC[:, c] & ~watched_N
        term_N = np.where(present_N, inputs.values_NC[:, c] * inputs.weights_NC[:, c], 0.0)
        if op == "add":
            joined_N = total_N + term_N
        else:
            joined_N = np.where(lacks_N & ~started_N, term_N, total_N * term_N)
        total_N = np.where(present_N, joined_N, total_N)
        started_N |= (present_N | inputs.closed_NC[:, c]) & ~watched_N
        lacks_N |= ~present_N & ~watched_N
    return total_N

"""min and max: the smallest or largest w_c * s_c among the components that count.

The weights bring scores of different sizes to one scale before they are compared. A negative weight
inverts a cost. A row without a component (all behind closed gates) gets 0.
"""

from __future__ import annotations

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.rewards.combine.table import CombineInputs


def smallest(inputs: CombineInputs, *, settings: RewardConfig) -> np.ndarray:
    """min_c (w_c * s_c): the worst case."""
    del settings
    counted_NC = inputs.counted_NC
    terms_NC = np.where(counted_NC, inputs.values_NC * inputs.weights_NC, np.inf)
    return np.where(counted_NC.any(axis=1), terms_NC.min(axis=1, initial=np.inf), 0.0)


def largest(inputs: CombineInputs, *, settings: RewardConfig) -> np.ndarray:
    """max_c (w_c * s_c)."""
    del settings
    counted_NC = inputs.counted_NC
    terms_NC = np.where(counted_NC, inputs.values_NC * inputs.weights_NC, -np.inf)
    return np.where(counted_NC.any(axis=1), terms_NC.max(axis=1, initial=-np.inf), 0.0)

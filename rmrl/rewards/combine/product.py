"""product: prod_c (w_c * s_c) over the components that count."""

from __future__ import annotations

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.rewards.combine.table import CombineInputs


def product(inputs: CombineInputs, *, settings: RewardConfig) -> np.ndarray:
    """The weighted scores' product, as in `fold` with mul.

    Factors that a row lacks are left out. A row without any (all behind closed gates) gets 0, not
    the empty product's 1. Scores raised to their weights would not exist for negative ones.
    """
    del settings
    counted_NC = inputs.counted_NC
    factors_NC = np.where(counted_NC, inputs.values_NC * inputs.weights_NC, 1.0)
    return np.where(counted_NC.any(axis=1), factors_NC.prod(axis=1), 0.0)

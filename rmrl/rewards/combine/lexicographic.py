"""lexicographic: the first component decides; where it ties, the second; and so on.

Within each prompt's group the responses are ordered, and the reward is the dense rank, from 0
(last) to 1 (first):

    correct   style         order                      reward
       1       0.2     ->   2nd                          0.5
       1       0.9     ->   1st                          1
       0       1.0     ->   3rd                          0
       1       0.2     ->   2nd, tied with the first     0.5

Ranks are taken within the group, so a response's reward does not depend on which other prompts
share its batch. A group in which all tie, or a single response, gets 0.5: use it with several
responses per prompt.

Scores whose difference is at most reward.lexicographic_tolerance tie. Ties join into chains: with
tolerance 0.1 the scores 0.30, 0.38 and 0.46 are all tied. The sign of a weight says which direction
is better. Its size has no effect; weight 0 leaves a component out. A component that a row lacks
because its gate is closed ranks below every score there.
"""

from __future__ import annotations

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.rewards.combine.table import CombineInputs
from rmrl.rewards.transforms.ties import consecutive, refined

_SLACK = 1e-9
"""Share of the tolerance that rounding may add: 0.4 - 0.3 is a little more than 0.1 in floating
point."""


def lexicographic(inputs: CombineInputs, *, settings: RewardConfig) -> np.ndarray:
    """Return dense ranks in 0..1 per group. See the module."""
    if not len(inputs.values_NC):
        return np.zeros(0)
    group_N = consecutive(inputs.group_ids_N)
    tolerance_N = np.full(len(group_N), settings.lexicographic_tolerance * (1 + _SLACK))
    class_N = group_N
    for c in range(inputs.values_NC.shape[1]):
        signed_N = inputs.values_NC[:, c] * np.sign(inputs.weights_NC[:, c])
        class_N = refined(
            class_N, np.where(inputs.counted_NC[:, c], signed_N, -np.inf), tolerance_N
        )
    # Classes are numbered group by group, each from its worst to its best.
    first = np.full(group_N.max() + 1, len(class_N))
    last = np.zeros(group_N.max() + 1, dtype=np.int64)
    np.minimum.at(first, group_N, class_N)
    np.maximum.at(last, group_N, class_N)
    steps_N = (last - first)[group_N]
    return np.where(steps_N > 0, (class_N - first[group_N]) / np.maximum(steps_N, 1), 0.5)

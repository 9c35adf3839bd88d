"""DAPO's dynamic sampling (arXiv:2503.14476, section 3.2): which groups have something to teach.

A group whose values are all equal has advantage 0 for every response. The paper drops groups with
accuracy 0 or 1. For other rewards the same is a group without contrast. The trainer samples other
groups in their place.
"""

from __future__ import annotations

import torch

from rmrl.algorithms.groups import group_statistics


def informative_groups(values_B: torch.Tensor, group_ids_B: torch.Tensor) -> torch.Tensor:
    """Return bool [B]: whether the row's group holds at least two values that differ by more than
    rounding (`masking.rounding_floor`).

    `values_B` has no NaN: rows without a verdict are in no statistic and are left out before.
    Groups are sets of equal ids, in any order. Values are rounded to float32 first, as the
    advantage estimators get them, so that both find contrast in the same groups.
    """
    return ~group_statistics(values_B.float(), group_ids_B).constant_B

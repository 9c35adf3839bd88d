"""Statistics over the responses to one prompt.

Rows are grouped by id alone: groups need not be contiguous nor equal in size. Rows without a
verdict have been removed before, so a group's numbers come from the rows that have one. The
standard deviation is unbiased (divides by N - 1): GRPO's paper (arXiv:2402.03300) writes only
std(r), and TRL and verl read it as torch.std, whose default this is.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch

from rmrl.algorithms.masking import rounding_floor


class GroupStatistics(NamedTuple):
    """Every field has shape [B]: a row's own value, or its group's number. float64 except for
    `constant_B`."""

    centred_B: torch.Tensor
    """value - group mean. Exactly 0 in a constant group."""
    mean_B: torch.Tensor
    std_B: torch.Tensor
    """Unbiased. 0 in a constant group and in a group with one row."""
    count_B: torch.Tensor
    constant_B: torch.Tensor
    """bool: the group has no contrast (one row, or all values equal up to
    `masking.rounding_floor`)."""


def group_statistics(values_B: torch.Tensor, group_ids_B: torch.Tensor) -> GroupStatistics:
    """Return the mean and the deviation of each row's group. `group_ids_B` are any integers, [B].
    An empty batch is valid."""
    # Groups are numbered from 0, whatever their ids are.
    unique_and_inverse = torch.unique(group_ids_B, return_inverse=True)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    group_B = cast("torch.Tensor", unique_and_inverse[1])
    exact_B = values_B.double()
    count_B = _total_of_group(torch.ones_like(exact_B), group_B)
    mean_B = _total_of_group(exact_B, group_B) / count_B
    centred_B = exact_B - mean_B
    spread_B = _largest_of_group(centred_B.abs(), group_B)
    constant_B = spread_B <= rounding_floor(_largest_of_group(exact_B.abs(), group_B))
    centred_B = centred_B.masked_fill(constant_B, 0.0)
    std_B = (_total_of_group(centred_B.square(), group_B) / (count_B - 1).clamp(min=1)).sqrt()
    return GroupStatistics(centred_B, mean_B, std_B, count_B, constant_B)


def group_mean(values_B: torch.Tensor, group_ids_B: torch.Tensor) -> torch.Tensor:
    """Return the mean of each row's group, [B], float64."""
    return group_statistics(values_B, group_ids_B).mean_B


def leave_one_out(statistics: GroupStatistics) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (value - mean of the others, unbiased deviation of the others), each [B], float64.

    Both are 0 in a constant group and in a group with one row. The deviation is 0 where the others
    are equal up to rounding, and where there is only one other.

        sum over j != i of (r_j - mean of the others)^2 = sum over j of c_j^2 - N / (N - 1) c_i^2
    """
    count_B = statistics.count_B
    others_B = (count_B - 1).clamp(min=1)
    centred_B = statistics.centred_B * count_B / others_B
    squares_B = statistics.std_B.square() * others_B - statistics.centred_B * centred_B
    std_B = (squares_B.clamp(min=0) / (count_B - 2).clamp(min=1)).sqrt()
    magnitude_B = statistics.mean_B.abs() + statistics.centred_B.abs()
    without_contrast_B = (count_B < 3) | (std_B <= rounding_floor(magnitude_B))
    return centred_B, std_B.masked_fill(without_contrast_B, 0.0)


def constant_fraction(statistics: GroupStatistics) -> float:
    """Return the share of groups, 0..1, that teach nothing because all their rewards are equal.
    Return 0 for an empty batch."""
    per_group_B = 1 / statistics.count_B  # each group's rows sum to one group
    total = per_group_B.sum().item()
    if not total:
        return 0.0
    return per_group_B[statistics.constant_B].sum().item() / total


def _total_of_group(values_B: torch.Tensor, group_B: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(values_B).index_add_(0, group_B, values_B)[group_B]


def _largest_of_group(values_B: torch.Tensor, group_B: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(values_B).scatter_reduce_(0, group_B, values_B, reduce="amax")[group_B]

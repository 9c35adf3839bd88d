"""Pass@k: credit a response for what it adds to the best of k (arXiv:2503.19595; for k < N
arXiv:2505.15201).

    k = N    A_best = r_max - r_second,    all others 0
             over the N responses to the same prompt
    k < N    A_i = max(set) - max(set without i), averaged over all sets with k responses,
             0 for sets without i
    with norm_adv_by_std_in_grpo:  A_i / (std(r) + 1e-6), std unbiased

The mean has a closed form: i adds r_i - r_j to a set when it is the best and j the second best, and
with q responses below j there are C(q, k - 2) sets like that out of C(N, k). k is
algorithm.passk_k, at least 2; null means N, and it is never more than the group's size.
Departures: a group whose rewards are equal up to rounding, or that has one response, gets exactly
0. Token rewards are refused: pass@k is about outcomes, and a penalty would count for the best
response alone.
"""

from __future__ import annotations

from math import comb

import torch

from rmrl.algorithms.advantages.grpo import STD_EPSILON
from rmrl.algorithms.advantages.summary import advantage_metrics
from rmrl.algorithms.descriptors import estimator
from rmrl.algorithms.groups import constant_fraction, group_statistics
from rmrl.algorithms.rewards import refuse_token_rewards, spread_over_tokens
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.errors import ConfigError
from rmrl.types import AdvantageInputs, Advantages


def _problems(settings: AlgorithmConfig) -> list[str]:
    """Settings without a rival for the best response."""
    if settings.passk_k is None or settings.passk_k >= 2:
        return []
    return [
        f"algorithm.passk_k={settings.passk_k}: the best of one response has no rival; use 2 or"
        " more, or null for the group"
    ]


@estimator(group=True, token_rewards=False, problems=_problems)
def grpo_passk(inputs: AdvantageInputs, *, settings: AlgorithmConfig) -> Advantages:
    """Credit for what each response adds to the best of k. Raises ConfigError for passk_k below 2
    and for token rewards."""
    if settings.passk_k is not None and settings.passk_k < 2:
        raise ConfigError(
            f"algorithm.passk_k={settings.passk_k}: a set of k responses needs a second best; use 2"
            " or more, or null for all"
        )
    refuse_token_rewards(
        inputs,
        estimator="grpo_passk",
        why="only the best of a set is credited, so a penalty on the others is lost",
    )
    mask_BT = inputs.response_mask_BT
    ids_B = inputs.group_ids_B
    group = group_statistics(inputs.rewards_B, ids_B)
    added_B = torch.zeros_like(group.centred_B)
    for number in ids_B[~group.constant_B].unique():
        rows = (ids_B == number).nonzero()[:, 0]
        added_B[rows] = added_to_the_best(inputs.rewards_B[rows].double(), k=settings.passk_k)
    scale_B = group.std_B + STD_EPSILON if settings.norm_adv_by_std_in_grpo else 1.0
    advantages_BT = spread_over_tokens(added_B / scale_B, mask_BT)
    metrics = {
        **advantage_metrics(advantages_BT, mask_BT),
        "group/constant_fraction": constant_fraction(group),
    }
    return Advantages(advantages_BT=advantages_BT, metrics=metrics)


def added_to_the_best(rewards_N: torch.Tensor, *, k: int | None) -> torch.Tensor:
    """Mean over the sets of k responses (null: all N) of a response's contribution to the best, for
    each response of one group of at least 2, [N] float64."""
    size = len(rewards_N)
    k = size if k is None else min(k, size)
    ascending_N, order_N = rewards_N.sort()
    sets = [comb(below, k - 2) / comb(size, k) for below in range(size)]
    sets_N = torch.tensor(sets, dtype=torch.float64, device=rewards_N.device)
    # [i, j]: the lead of the best i over the second best j below it
    ahead_NN = (ascending_N[:, None] - ascending_N[None, :]).tril(diagonal=-1)
    added_N = torch.zeros_like(rewards_N, dtype=torch.float64)
    added_N[order_N] = ahead_NN @ sets_N
    return added_N

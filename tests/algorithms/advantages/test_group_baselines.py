"""RLOO, OPO and REINFORCE++-baseline against numbers computed by hand."""

from __future__ import annotations

import torch

from rmrl.algorithms.advantages.opo import opo
from rmrl.algorithms.advantages.reinforce_plus_plus_baseline import reinforce_plus_plus_baseline
from rmrl.algorithms.advantages.rloo import rloo
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs

CONFIG = AlgorithmConfig()


def inputs(
    rewards: list[float], groups: list[int], lengths: list[int] | None = None
) -> AdvantageInputs:
    lengths_B = torch.tensor(lengths or [2] * len(rewards))
    mask_BT = (torch.arange(int(lengths_B.max())) < lengths_B[:, None]).float()
    return AdvantageInputs(
        rewards_B=torch.tensor(rewards), group_ids_B=torch.tensor(groups), response_mask_BT=mask_BT
    )


def test_rloo_subtracts_the_mean_of_the_others() -> None:
    found_BT = rloo(
        inputs([1.0, 8.0, 2.0, 6.0, 5.0], [0, 1, 0, 0, 1]), settings=CONFIG
    ).advantages_BT
    # 1 - (2 + 6) / 2, 8 - 5, 2 - (1 + 6) / 2, 6 - (1 + 2) / 2, 5 - 8
    torch.testing.assert_close(found_BT[:, 0], torch.tensor([-3.0, 3.0, -1.5, 4.5, -3.0]))


def test_rloo_group_of_one_and_constant_group() -> None:
    assert (
        rloo(inputs([7.0, 0.3, 0.3], [0, 1, 1]), settings=CONFIG).advantages_BT.tolist()
        == [[0, 0]] * 3
    )


def test_opo_weighs_the_baseline_by_length() -> None:
    found_BT = opo(inputs([1.0, 5.0, 4.0], [0, 0, 9], [3, 1, 2]), settings=CONFIG).advantages_BT
    # baseline (3 * 1 + 1 * 5) / 4 = 2; the group of one is its own baseline
    assert found_BT.tolist() == [[-1, -1, -1], [3, 0, 0], [0, 0, 0]]


def test_opo_with_equal_lengths_is_the_group_mean() -> None:
    assert opo(inputs([1.0, 3.0, 2.0], [0, 0, 0]), settings=CONFIG).advantages_BT[
        :, 0
    ].tolist() == [-1, 1, 0]


def test_opo_constant_group_is_exactly_zero() -> None:
    assert (
        opo(inputs([0.3, 0.3, 0.3], [0, 0, 0], [3, 1, 2]), settings=CONFIG)
        .advantages_BT.abs()
        .max()
        == 0
    )


def test_reinforce_plus_plus_baseline_whitens_over_the_batch() -> None:
    found_BT = reinforce_plus_plus_baseline(
        inputs([0.0, 2.0, 10.0, 14.0], [0, 0, 1, 1], [1] * 4), settings=CONFIG
    ).advantages_BT
    # centred -1 1 -2 2; unbiased variance 10 / 3
    root = (10 / 3) ** 0.5
    torch.testing.assert_close(
        found_BT[:, 0], torch.tensor([-1 / root, 1 / root, -2 / root, 2 / root])
    )


def test_reinforce_plus_plus_baseline_counts_tokens_not_sequences() -> None:
    found_BT = reinforce_plus_plus_baseline(
        inputs([0.0, 2.0], [0, 0], [3, 1]), settings=CONFIG
    ).advantages_BT
    # tokens -1 -1 -1 1: mean -0.5, squares 0.25 * 3 + 2.25 = 3, variance 3 / 3 = 1
    torch.testing.assert_close(found_BT, torch.tensor([[-0.5, -0.5, -0.5], [1.5, 0.0, 0.0]]))


def test_reinforce_plus_plus_baseline_without_contrast_is_zero() -> None:
    assert (
        reinforce_plus_plus_baseline(inputs([1.0, 1.0, 4.0], [0, 0, 1]), settings=CONFIG)
        .advantages_BT.abs()
        .max()
        == 0
    )

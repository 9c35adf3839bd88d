"""GRPO and its relatives over groups, against numbers computed by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rmrl.algorithms.advantages.grpo import grpo
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs

MEAN_ONLY = AlgorithmConfig(norm_adv_by_std_in_grpo=False)


def inputs(rewards: list[float], groups: list[int], **extra: torch.Tensor) -> AdvantageInputs:
    mask_BT = torch.ones(len(rewards), 2)
    return AdvantageInputs(
        rewards_B=torch.tensor(rewards),
        group_ids_B=torch.tensor(groups),
        **{"response_mask_BT": mask_BT, **extra},
    )


def advantages(
    rewards: list[float], groups: list[int], config: AlgorithmConfig | None = None
) -> torch.Tensor:
    return grpo(inputs(rewards, groups), settings=config or AlgorithmConfig()).advantages_BT[:, 0]


def test_one_group() -> None:
    # mean 2, unbiased std 1
    torch.testing.assert_close(
        advantages([1.0, 3.0, 2.0], [0, 0, 0]), torch.tensor([-1.0, 1.0, 0.0]), rtol=0, atol=2e-6
    )


def test_two_interleaved_groups_of_different_size() -> None:
    found_B = advantages([1.0, 0.0, 3.0, 4.0, 2.0], [5, 2, 5, 2, 5])
    half = 2 / 8**0.5  # deviations -2, 2; std sqrt(8)
    torch.testing.assert_close(
        found_B, torch.tensor([-1.0, -half, 1.0, half, 0.0]), rtol=0, atol=2e-6
    )


def test_without_std_is_dr_grpo() -> None:
    assert advantages([1.0, 3.0, 2.0, 10.0, 30.0], [0, 0, 0, 1, 1], MEAN_ONLY).tolist() == [
        -1,
        1,
        0,
        -10,
        10,
    ]


def test_every_counted_token_gets_the_advantage_of_its_sequence() -> None:
    mask_BT = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    found = grpo(inputs([0.0, 2.0], [0, 0], response_mask_BT=mask_BT), settings=MEAN_ONLY)
    assert found.advantages_BT.tolist() == [[-1, -1, 0], [1, 0, 1]]
    assert found.returns_BT is None


@pytest.mark.parametrize("config", [AlgorithmConfig(), MEAN_ONLY])
def test_no_contrast_gives_exact_zeros(config: AlgorithmConfig) -> None:
    # one row; equal rows; rows equal but for rounding (0.1 + 0.2 in float32 sums)
    nearly = (torch.tensor(0.1) + torch.tensor(0.2)).item()
    assert (
        advantages([5.0, 1.0, 1.0, 0.3, nearly, 0.3 + 6e-8], [0, 1, 1, 2, 2, 2], config).tolist()
        == [0.0] * 6
    )


def test_a_row_without_verdict_leaves_the_baseline_of_the_rest() -> None:
    # a group of four whose third row failed: the caller drops it and the others are a group of
    # three
    torch.testing.assert_close(
        advantages([1.0, 3.0, 2.0], [4, 4, 4]), torch.tensor([-1.0, 1.0, 0.0]), rtol=0, atol=2e-6
    )
    with_other_group_B = advantages([1.0, 3.0, 7.0, 2.0, 9.0], [4, 4, 6, 4, 6])
    torch.testing.assert_close(
        with_other_group_B[[0, 1, 3]], torch.tensor([-1.0, 1.0, 0.0]), rtol=0, atol=2e-6
    )


def test_token_rewards_join_the_reward() -> None:
    penalty_BT = torch.tensor([[-0.5, -0.5], [0.0, 0.0]])
    found = grpo(inputs([1.0, 1.0], [0, 0], token_rewards_BT=penalty_BT), settings=MEAN_ONLY)
    assert found.advantages_BT[:, 0].tolist() == [-0.5, 0.5]  # rewards 0 and 1


def test_metrics() -> None:
    metrics = grpo(inputs([0.0, 2.0, 5.0, 5.0], [0, 0, 1, 1]), settings=MEAN_ONLY).metrics
    assert metrics["group/constant_fraction"] == 0.5
    assert metrics["advantage/mean"] == 0.0
    assert metrics["advantage/std"] == pytest.approx(
        (4 / 7) ** 0.5
    )  # four of eight tokens at +-1, N - 1 = 7


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 20)), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(
    rows=ROWS,
    seed=st.integers(0, 999),
    shift=st.integers(-5, 5),
    scale=st.sampled_from([0.5, 2.0, 8.0]),
)
def test_order_shift_and_scale_do_not_matter(
    rows: list[tuple[int, int]], seed: int, shift: int, scale: float
) -> None:
    groups, rewards = [g for g, _ in rows], [float(v) for _, v in rows]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    moved_B = advantages(
        [scale * rewards[i] + shift for i in order], [groups[i] * 10 - 3 for i in order]
    )
    torch.testing.assert_close(moved_B, advantages(rewards, groups)[order], rtol=1e-4, atol=1e-5)


def test_batch_scale_divides_all_groups_by_one_deviation() -> None:
    # means 2 and 20; mean of the batch 9.2, squared deviations 67.24 + 38.44 + 51.84 + 0.64 + 432.64
    # = 590.8 over 4, so the deviation is sqrt(147.7)
    found_B = advantages(
        [1.0, 3.0, 2.0, 10.0, 30.0], [0, 0, 0, 1, 1], AlgorithmConfig(scale_rewards="batch")
    )
    expected_B = torch.tensor([-1.0, 1.0, 0.0, -10.0, 10.0]) / 147.7**0.5
    torch.testing.assert_close(found_B, expected_B, rtol=1e-5, atol=1e-5)


def test_scale_rewards_takes_precedence_over_the_older_switch() -> None:
    rewards = [1.0, 3.0, 2.0]
    off = AlgorithmConfig(scale_rewards="none")
    on = AlgorithmConfig(scale_rewards="group", norm_adv_by_std_in_grpo=False)
    assert advantages(rewards, [0, 0, 0], off).tolist() == [-1, 1, 0]
    torch.testing.assert_close(
        advantages(rewards, [0, 0, 0], on), advantages(rewards, [0, 0, 0]), rtol=0, atol=0
    )


def test_with_a_single_group_batch_scale_is_group_scale() -> None:
    rewards = [0.5, 0.25, 3.0, -1.0]
    torch.testing.assert_close(
        advantages(rewards, [4] * 4, AlgorithmConfig(scale_rewards="batch")),
        advantages(rewards, [4] * 4),
    )


def test_leave_one_out_compares_with_the_others_alone() -> None:
    found_B = advantages([1.0, 3.0, 2.0], [0, 0, 0], AlgorithmConfig(leave_one_out=True))
    # others (3, 2): mean 2.5, std sqrt(0.5); (1, 2): 1.5, sqrt(0.5); (1, 3): 2, sqrt(2)
    expected_B = torch.tensor([-1.5 / 0.5**0.5, 1.5 / 0.5**0.5, 0.0])
    torch.testing.assert_close(found_B, expected_B, rtol=1e-5, atol=1e-5)


def test_leave_one_out_without_std_is_rloo() -> None:
    config = AlgorithmConfig(leave_one_out=True, scale_rewards="none")
    assert advantages([1.0, 3.0, 2.0, 10.0, 30.0], [0, 0, 0, 1, 1], config).tolist() == [
        -1.5,
        1.5,
        0,
        -20,
        20,
    ]


def test_leave_one_out_divides_by_nothing_where_the_others_are_equal() -> None:
    config = AlgorithmConfig(leave_one_out=True)
    found_B = advantages([1.0, 0.0, 0.0, 7.0, 5.0], [0, 0, 0, 1, 1], config)
    # the others of the first are (0, 0); those of the second (1, 0): mean 0.5, std sqrt(0.5); a
    # pair has one other each
    low = -0.5 / 0.5**0.5
    torch.testing.assert_close(
        found_B, torch.tensor([1.0, low, low, 2.0, -2.0]), rtol=1e-5, atol=1e-5
    )


@settings(max_examples=30, deadline=None, derandomize=True)
@given(rewards=st.lists(st.integers(-5, 5), min_size=3, max_size=7))
def test_leave_one_out_is_what_a_loop_over_the_others_gives(rewards: list[int]) -> None:
    config = AlgorithmConfig(leave_one_out=True)
    found_B = advantages([float(r) for r in rewards], [0] * len(rewards), config)
    for i, reward in enumerate(rewards):
        others = torch.tensor([float(r) for j, r in enumerate(rewards) if j != i])
        expected = reward - others.mean()
        if others.std() > 0:
            expected = expected / (others.std() + 1e-6)
        torch.testing.assert_close(found_B[i], expected, rtol=1e-4, atol=1e-4)

"""GDPO: normalise each component in its group, add up, normalise over the batch; against numbers
computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from rmrl.algorithms.advantages.gdpo import gdpo
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.errors import ConfigError
from rmrl.types import AdvantageInputs, Advantages

NAN = math.nan
HALF = 0.5**0.5


def estimate(
    scores: list[list[float]],
    groups: list[int],
    weights: list[float],
    *,
    std: bool = True,
    **extra: torch.Tensor,
) -> Advantages:
    inputs = AdvantageInputs(
        rewards_B=torch.full((len(scores),), 77.0),  # not looked at
        group_ids_B=torch.tensor(groups),
        response_mask_BT=torch.ones(len(scores), 1),
        scores_BC=torch.tensor(scores),
        weights_C=torch.tensor(weights),
        **extra,
    )
    return gdpo(inputs, settings=AlgorithmConfig(norm_adv_by_std_in_grpo=std))


def expect(found: Advantages, expected: list[float]) -> None:
    torch.testing.assert_close(
        found.advantages_BT[:, 0], torch.tensor(expected), rtol=1e-4, atol=1e-5
    )


def test_components_count_by_their_weight_and_not_by_their_spread():
    # group 0: (0, 300) (1, 100): a = (-h, h) and (h, -h), h = sqrt(1/2); weights 2 and 1: sums -h,
    # h
    # group 1: (0, 100) (1, 100): the second component has no contrast: sums -2h, 2h
    # over the batch: mean 0, squares 0.5 + 0.5 + 2 + 2 = 5, unbiased variance 5 / 3
    found = estimate(
        [[0.0, 300.0], [1.0, 100.0], [0.0, 100.0], [1.0, 100.0]], [0, 0, 1, 1], [2.0, 1.0]
    )
    root = (5 / 3) ** 0.5
    expect(found, [-HALF / root, HALF / root, -2 * HALF / root, 2 * HALF / root])
    assert found.metrics["group/constant_fraction"] == pytest.approx(
        0.25
    )  # of two components, none and half


def test_equal_sums_that_grpo_could_not_tell_apart():
    # rows (1, 0) and (0, 2) in one group, (1, 0) and (0, 0) in the other: sums of scores 1 2 and 1
    # 0
    found = estimate([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, 0.0]], [0, 0, 1, 1], [1.0, 1.0])
    # group 0: h - h = 0 twice; group 1: h and -h; squares 0.5 + 0.5, variance 1 / 3
    expect(found, [0.0, 0.0, HALF * 3**0.5, -HALF * 3**0.5])


def test_a_missing_verdict_is_in_no_statistic_and_adds_nothing():
    # component 0 over rows 0 and 2 only: -h, h; component 1 over rows 0 and 1 only: -h, h
    found = estimate([[0.0, 5.0], [NAN, 7.0], [4.0, NAN], [NAN, NAN]], [0, 0, 0, 0], [1.0, 1.0])
    # sums -2h, h, h over three rows: mean 0, squares 2 + 0.5 + 0.5 = 3, variance 3 / 2; the last
    # row is not among them
    root = 1.5**0.5
    expect(found, [-2 * HALF / root, HALF / root, HALF / root, 0.0])


def test_a_component_of_weight_zero_is_in_no_statistic():
    plain = estimate([[0.0], [4.0], [NAN]], [0, 0, 0], [1.0])
    watched = estimate([[0.0, 5.0], [4.0, NAN], [NAN, 1.0]], [0, 0, 0], [1.0, 0.0])
    # over two rows: -h, h, unbiased variance 1; the third row has a watched verdict alone and is
    # not among them
    expect(plain, [-HALF, HALF, 0.0])
    torch.testing.assert_close(watched.advantages_BT, plain.advantages_BT)
    assert watched.metrics == plain.metrics


def test_without_the_groups_deviation():
    # centred: -1 1 and -3 3; mean 0, squares 20, variance 20 / 3
    found = estimate([[0.0], [2.0], [0.0], [6.0]], [0, 0, 1, 1], [1.0], std=False)
    root = (20 / 3) ** 0.5
    expect(found, [-1 / root, 1 / root, -3 / root, 3 / root])


def test_no_contrast_gives_exact_zeros():
    assert estimate(
        [[1.0, 2.0], [1.0, 2.0], [0.5, 9.0]], [0, 0, 1], [1.0, 1.0]
    ).advantages_BT.tolist() == [[0], [0], [0]]
    assert estimate([[NAN, NAN]] * 2, [0, 0], [1.0, 1.0]).advantages_BT.tolist() == [[0], [0]]


def test_token_rewards_and_missing_scores_are_refused():
    with pytest.raises(ConfigError, match=r"adv_estimator=gdpo .*token rewards.*use_kl_loss=true"):
        estimate([[1.0], [2.0]], [0, 0], [1.0], token_rewards_BT=torch.zeros(2, 1))
    without = AdvantageInputs(
        rewards_B=torch.ones(2), group_ids_B=torch.zeros(2), response_mask_BT=torch.ones(2, 1)
    )
    with pytest.raises(ConfigError, match="gdpo needs the score of each component"):
        gdpo(without, settings=AlgorithmConfig())

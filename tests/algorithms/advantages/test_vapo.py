"""VAPO's two lambdas and the one that grows with the response, by hand."""

from __future__ import annotations

import pytest
import torch

from rmrl.algorithms.advantages.gae import gae, generalised_advantages
from rmrl.algorithms.masking import masked_whiten
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs, Advantages

MASK_BT = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
VALUES_BT = torch.tensor([[0.5, 0.25, 0.5, 0.75], [0.5, 0.25, 9.0, 9.0]])


def estimated(**settings: object) -> Advantages:
    inputs = AdvantageInputs(
        rewards_B=torch.tensor([1.0, 0.0]),
        group_ids_B=torch.tensor([0, 1]),
        response_mask_BT=MASK_BT,
        values_BT=VALUES_BT,
    )
    return gae(inputs, settings=AlgorithmConfig(**settings))


def test_the_critic_has_a_lambda_of_its_own():
    # with lambda 1 and gamma 1 the target is the return: the reward at every token
    both = estimated(lam=0.5, lam_critic=1.0)
    assert both.returns_BT is not None
    assert both.returns_BT.tolist() == [[1, 1, 1, 1], [0, 0, 0, 0]]
    torch.testing.assert_close(both.advantages_BT, estimated(lam=0.5).advantages_BT)


def test_the_same_lambda_for_both_is_one_lambda():
    one = estimated(lam=0.5)
    both = estimated(lam=0.5, lam_critic=0.5)
    torch.testing.assert_close(both.returns_BT, one.returns_BT, rtol=0, atol=0)
    torch.testing.assert_close(both.advantages_BT, one.advantages_BT, rtol=0, atol=0)


def test_the_policys_lambda_grows_with_the_response():
    # alpha 0.5: lambda 1 - 1 / (0.5 * 4) = 0.5 for four tokens, 1 - 1 / (0.5 * 2) = 0 for two
    # deltas of row 0: -0.25, 0.25, 0.25, 0.25; from the end 0.25, 0.25 + 0.125 = 0.375,
    # 0.25 + 0.1875 = 0.4375, -0.25 + 0.21875 = -0.03125. Row 1: its deltas alone, -0.25, -0.25
    raw_BT = torch.tensor([[-0.03125, 0.4375, 0.375, 0.25], [-0.25, -0.25, 0.0, 0.0]])
    adaptive = estimated(lam_length_alpha=0.5)
    torch.testing.assert_close(adaptive.advantages_BT, masked_whiten(raw_BT, MASK_BT))


def test_the_length_leaves_the_critics_lambda_alone():
    adaptive = estimated(lam=1.0, lam_length_alpha=0.5)
    assert adaptive.returns_BT is not None
    assert adaptive.returns_BT.tolist() == [[1, 1, 1, 1], [0, 0, 0, 0]]


def test_a_response_too_short_for_its_alpha_has_lambda_zero():
    # alpha 0.05: 1 - 1 / (0.05 * 4) = -4, bounded to 0
    short = estimated(lam_length_alpha=0.05)
    torch.testing.assert_close(short.advantages_BT, estimated(lam=0.0).advantages_BT)


def test_a_lambda_per_row_is_that_number_for_the_row():
    rewards_BT = torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0]])
    by_row_BT = generalised_advantages(
        rewards_BT, VALUES_BT * MASK_BT, MASK_BT, gamma=0.9, lam=torch.tensor([0.5, 0.8])
    )
    for row, lam in enumerate((0.5, 0.8)):
        alone_BT = generalised_advantages(
            rewards_BT, VALUES_BT * MASK_BT, MASK_BT, gamma=0.9, lam=lam
        )
        assert by_row_BT[row].tolist() == pytest.approx(alone_BT[row].tolist())

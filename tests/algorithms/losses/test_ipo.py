"""IPO: the mask is of probabilities, not of ratios, and does not ask for the sign."""

from __future__ import annotations

import math

import pytest
import torch

from rmrl.algorithms.losses.dppo import dppo_tv
from rmrl.algorithms.losses.ipo import ipo
from rmrl.config.schema.actor import ActorConfig, PolicyLossConfig
from rmrl.types import LossInputs

NEW_T = [0.9, 0.5, 0.02, 0.1]
OLD_T = [0.5, 0.9, 0.001, 0.1]
"""Moved by 0.4, -0.4, 0.019 (a ratio of 20) and 0."""


def inputs(advantage: float) -> LossInputs:
    return LossInputs(
        logprobs_BT=torch.tensor([NEW_T]).log().requires_grad_(),
        old_logprobs_BT=torch.tensor([OLD_T]).log(),
        advantages_BT=torch.full((1, 4), advantage),
        mask_BT=torch.ones(1, 4),
    )


def settings(coefficient: float = 0.0) -> ActorConfig:
    return ActorConfig(
        clip_ratio=0.3, clip_ratio_c=99.0, policy_loss=PolicyLossConfig(ipo_kl_coef=coefficient)
    )


@pytest.mark.parametrize("advantage", [2.0, -2.0])
def test_tokens_whose_probability_moved_either_way_have_no_gradient(advantage: float):
    loss_BT, metrics = ipo(inputs(advantage), settings=settings())
    # 0.4 and -0.4 are beyond 0.3; the ratio of 20 is not asked for
    torch.testing.assert_close(loss_BT, -advantage * torch.tensor([[0.0, 0.0, 20.0, 1.0]]))
    assert metrics["clip_fraction"].item() == 2


def test_the_bounds_may_differ():
    loss_BT, _ = ipo(inputs(1.0), settings=ActorConfig(clip_ratio_low=0.5, clip_ratio_high=0.01))
    assert (loss_BT.abs() > 0.1).tolist() == [[False, True, False, True]]


def test_the_pull_is_on_every_token():
    batch = inputs(0.0)
    loss_BT, _ = ipo(batch, settings=settings(0.5))
    log_ratios = [math.log(new / old) for new, old in zip(NEW_T, OLD_T, strict=True)]
    assert loss_BT[0].tolist() == pytest.approx([0.5 * d * d for d in log_ratios], abs=1e-6)
    gradient_BT = torch.autograd.grad(loss_BT.sum(), batch.logprobs_BT)[0]
    assert gradient_BT[0].tolist() == pytest.approx(log_ratios, abs=1e-5)


def test_where_every_update_leads_away_it_is_dppo_tv():
    batch = LossInputs(
        logprobs_BT=torch.tensor([[0.9, 0.55]]).log(),
        old_logprobs_BT=torch.tensor([[0.5, 0.5]]).log(),
        advantages_BT=torch.ones(1, 2),
        mask_BT=torch.ones(1, 2),
    )
    torch.testing.assert_close(
        ipo(batch, settings=settings())[0], dppo_tv(batch, settings=settings())[0]
    )

"""GMPO: values and gradients by hand."""

from __future__ import annotations

import math

import pytest
import torch

from rmrl.algorithms import LOSSES
from rmrl.algorithms.losses.gmpo import gmpo
from rmrl.config.schema.actor import ActorConfig
from rmrl.types import LossInputs

MASK_BT = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
LOG_RATIOS_BT = torch.tensor([[0.9, -0.9, 0.3], [-0.9, 0.5, 9.0]])


def inputs(advantages_BT: torch.Tensor) -> LossInputs:
    logprobs_BT = torch.full((2, 3), -0.5).requires_grad_()
    return LossInputs(
        logprobs_BT=logprobs_BT,
        old_logprobs_BT=-0.5 - LOG_RATIOS_BT,
        advantages_BT=advantages_BT,
        mask_BT=MASK_BT,
    )


def test_each_token_is_bounded_on_one_side_before_the_mean():
    batch = inputs(torch.tensor([[2.0], [-1.0]]).expand(2, 3) * MASK_BT)
    loss_BT, metrics = gmpo(batch, settings=ActorConfig(clip_ratio=0.4))
    # A > 0: 0.4 -0.9 0.3, mean -0.2 / 3;  A < 0: -0.4 0.5, mean 0.05
    good, bad = -2 * math.exp(-0.2 / 3), math.exp(0.05)
    torch.testing.assert_close(loss_BT, torch.tensor([[good, good, good], [bad, bad, 0.0]]))
    gradient_BT = torch.autograd.grad(loss_BT.sum(), batch.logprobs_BT)[0]
    torch.testing.assert_close(gradient_BT, torch.tensor([[0.0, good, good], [0.0, bad, 0.0]]))
    assert metrics["clip_fraction"].item() == 2


def test_the_mean_over_tokens_has_the_gradient_of_the_geometric_mean():
    batch = inputs(torch.tensor([[1.5], [-0.5]]).expand(2, 3) * MASK_BT)
    loss_BT, _ = gmpo(batch, settings=ActorConfig(clip_ratio=9.0))
    found_BT = torch.autograd.grad(
        (loss_BT / MASK_BT.sum(1, keepdim=True)).sum(), batch.logprobs_BT
    )[0]
    mean_B = ((batch.logprobs_BT - batch.old_logprobs_BT) * MASK_BT).sum(1) / MASK_BT.sum(1)
    exact_BT = torch.autograd.grad(
        (-torch.tensor([1.5, -0.5]) * mean_B.exp()).sum(), batch.logprobs_BT
    )[0]
    torch.testing.assert_close(found_BT, exact_BT)


def test_separate_bounds():
    loss_BT, metrics = gmpo(
        inputs(MASK_BT), settings=ActorConfig(clip_ratio_low=0.1, clip_ratio_high=0.6)
    )
    assert loss_BT[0, 0].item() == pytest.approx(-math.exp((0.6 - 0.9 + 0.3) / 3), rel=1e-6)
    assert metrics["clip_fraction"].item() == 1


def test_both_names_are_the_same_loss():
    assert LOSSES["geo_mean"] is LOSSES["gmpo"] is gmpo

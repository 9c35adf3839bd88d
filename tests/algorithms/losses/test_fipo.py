"""FIPO: discounted sums over the rest of a response, bounds of the weight, and the limits in which
it is PPO."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rmrl.algorithms.losses.fipo import CHUNK, discounted_future, fipo
from rmrl.algorithms.losses.vanilla import vanilla
from rmrl.config.schema.actor import ActorConfig, PolicyLossConfig
from rmrl.errors import ConfigError
from rmrl.types import LossInputs


def inputs(ratios: list[float], advantage: float) -> LossInputs:
    log_ratios_BT = torch.tensor([ratios]).log()
    return LossInputs(
        logprobs_BT=(log_ratios_BT - 1).requires_grad_(),
        old_logprobs_BT=torch.full_like(log_ratios_BT, -1.0),
        advantages_BT=torch.full_like(log_ratios_BT, advantage),
        mask_BT=torch.ones_like(log_ratios_BT),
    )


def settings(**choice: float) -> ActorConfig:
    wide = {"fipo_half_life": 1.0, "fipo_weight_low": 0.0, "fipo_weight_high": 9.0}
    return ActorConfig(
        clip_ratio=8.0, clip_ratio_c=10.0, policy_loss=PolicyLossConfig(**{**wide, **choice})
    )


def test_a_token_is_weighted_by_its_own_and_half_the_next_log_ratio():
    batch = inputs([2.0, 4.0], 1.0)
    loss_BT, metrics = fipo(batch, settings=settings())
    # gamma 1/2: F = ln 2 + ln 4 / 2 = ln 4, and ln 4; f = 4 and 4; loss = -f r
    torch.testing.assert_close(loss_BT, torch.tensor([[-8.0, -16.0]]))
    assert metrics["influence"].item() == pytest.approx(8)


def test_the_weight_is_bounded_on_both_sides():
    bounded = settings(fipo_weight_low=1.0, fipo_weight_high=1.2)
    rising_BT, _ = fipo(inputs([2.0, 2.0], 1.0), settings=bounded)
    falling_BT, _ = fipo(inputs([0.5, 0.5], 1.0), settings=bounded)
    torch.testing.assert_close(rising_BT, torch.tensor([[-2.4, -2.4]]))
    torch.testing.assert_close(falling_BT, torch.tensor([[-0.5, -0.5]]))


def test_the_weight_has_no_gradient():
    batch = inputs([2.0, 4.0], 1.0)
    loss_BT, _ = fipo(batch, settings=settings())
    gradient_BT = torch.autograd.grad(loss_BT.sum(), batch.logprobs_BT)[0]
    # -f r, the gradient of -f A r alone
    torch.testing.assert_close(gradient_BT, loss_BT.detach())


def test_a_ratio_beyond_the_dual_clip_is_in_no_sum():
    _, metrics = fipo(inputs([2.0, 20.0], 1.0), settings=settings())
    # F = ln 2 and 0: weights 2 and 1
    assert metrics["influence"].item() == pytest.approx(3)


def test_a_bad_token_with_a_large_ratio_is_not_amplified():
    _, metrics = fipo(inputs([2.0, 4.0], -1.0), settings=settings(fipo_safe_ratio=3.0))
    # weights 4 (ratio 2 is safe) and 1 (4, cut to 1)
    assert metrics["influence"].item() == pytest.approx(5)


def test_on_policy_and_with_a_weight_of_one_it_is_ppo():
    batch = inputs([1.0, 1.0, 1.0], -2.0)
    plain = ActorConfig()
    torch.testing.assert_close(
        fipo(batch, settings=plain)[0], vanilla(batch, settings=plain)[0], rtol=0, atol=0
    )
    moved = inputs([0.5, 3.0, 1.1], -2.0)
    fixed = settings(fipo_weight_low=1.0, fipo_weight_high=1.0)
    torch.testing.assert_close(
        fipo(moved, settings=fixed)[0], vanilla(moved, settings=fixed)[0], rtol=0, atol=0
    )


def test_holes_are_passed_over():
    batch = inputs([2.0, 7.0, 2.0], 1.0)
    hole = replace(
        batch,
        mask_BT=torch.tensor([[1.0, 0.0, 1.0]]),
        old_logprobs_BT=batch.old_logprobs_BT.masked_fill(
            torch.tensor([[False, True, False]]), math.nan
        ),
    )
    _, metrics = fipo(hole, settings=settings())
    # F = ln 2 + ln 2 / 2 and ln 2
    assert metrics["influence"].item() == pytest.approx(2**1.5 + 2)


@pytest.mark.parametrize("length", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_sums_in_chunks_are_sums_token_by_token(length: int):
    values_BT = torch.randn(2, length, generator=torch.Generator().manual_seed(0))
    gamma = 2 ** (-1 / 32)
    expected_BT = torch.zeros_like(values_BT)
    running_B = torch.zeros(2)
    for t in reversed(range(length)):
        running_B = values_BT[:, t] + gamma * running_B
        expected_BT[:, t] = running_B
    torch.testing.assert_close(discounted_future(values_BT, gamma=gamma), expected_BT)


def test_bounds_in_the_wrong_order_are_refused():
    with pytest.raises(ConfigError, match=r"fipo_weight_low=2 is above fipo_weight_high=1\.2"):
        fipo(
            inputs([1.0], 1.0),
            settings=ActorConfig(policy_loss=PolicyLossConfig(fipo_weight_low=2.0)),
        )

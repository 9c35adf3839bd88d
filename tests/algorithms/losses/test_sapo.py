"""SAPO's soft gate: values and gradients by hand."""

from __future__ import annotations

import math

import pytest
import torch

from rmrl.algorithms.losses.sapo import sapo
from rmrl.config.schema.actor import ActorConfig, PolicyLossConfig
from rmrl.errors import ConfigError
from rmrl.types import LossInputs


def one_token(ratio: float, advantage: float, **taus: float) -> tuple[float, float]:
    logprobs_BT = torch.tensor([[math.log(ratio) - 1.0]], requires_grad=True)
    inputs = LossInputs(
        logprobs_BT=logprobs_BT,
        old_logprobs_BT=torch.tensor([[-1.0]]),
        advantages_BT=torch.tensor([[advantage]]),
        mask_BT=torch.ones(1, 1),
    )
    loss_BT, _ = sapo(
        inputs, settings=ActorConfig(policy_loss=PolicyLossConfig(loss_mode="sapo", **taus))
    )
    return loss_BT.item(), torch.autograd.grad(loss_BT.sum(), logprobs_BT)[0].item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        # sigmoid(0) = 1/2: f = 2 / tau; slope 1
        (1.0, 3.0, -6.0, -3.0),
        (1.0, -3.0, 3.0, 3.0),  # tau_neg 2: f = 1
        # tau 1: sigmoid(1) = 0.731059, f = 2.924234; slope 4 * 0.731059 * 0.268941 = 0.786448,
        # times r = 2
        (2.0, 1.0, -2.924234, -1.572895),
        # tau 2: sigmoid(-1) = 0.268941, f = 0.537883; slope 0.786448, times r = 0.5
        (0.5, -1.0, 0.537883, 0.393224),
        (1.5, 0.0, 0.0, 0.0),
    ],
)
def test_the_gate(ratio: float, advantage: float, loss: float, gradient: float):
    found = one_token(ratio, advantage, tau_pos=1.0, tau_neg=2.0)
    assert found == pytest.approx((loss, gradient), rel=1e-5)


def test_far_ratios_have_no_gradient_left():
    loss, gradient = one_token(1e6, 1.0)
    assert loss == pytest.approx(-4.0)
    assert gradient == 0.0


@pytest.mark.parametrize(("key", "value"), [("tau_neg", 0.0), ("tau_pos", -1.0)])
def test_a_temperature_must_be_above_zero(key: str, value: float):
    with pytest.raises(ConfigError, match=rf"policy_loss\.{key}={value}: .*above 0"):
        one_token(1.0, 1.0, **{key: value})

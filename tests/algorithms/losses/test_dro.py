"""DRO: value and gradient by hand."""

from __future__ import annotations

import torch

from rmrl.algorithms.losses.dro import dro
from rmrl.config.schema.actor import ActorConfig, PolicyLossConfig
from rmrl.types import LossInputs


def test_the_pull_balances_the_advantage():
    logprobs_BT = torch.tensor([[-1.0, -2.0, 0.0]], requires_grad=True)
    inputs = LossInputs(
        logprobs_BT=logprobs_BT,
        old_logprobs_BT=torch.tensor([[-3.0, -1.0, 0.0]]),  # log ratios 2 and -1
        advantages_BT=torch.tensor([[1.0, -3.0, 9.0]]),
        mask_BT=torch.tensor([[1.0, 1.0, 0.0]]),
    )
    settings = ActorConfig(policy_loss=PolicyLossConfig(loss_mode="dro", dro_beta=0.5))
    loss_BT, metrics = dro(inputs, settings=settings)
    # -(1 * -1 - 0.25 * 4) = 2;  -(-3 * -2 - 0.25 * 1) = -5.75
    torch.testing.assert_close(loss_BT, torch.tensor([[2.0, -5.75, 0.0]]))
    # -(1 - 0.5 * 2) = 0: log r = A / beta is where it rests;  -(-3 - 0.5 * -1) = 2.5
    torch.testing.assert_close(
        torch.autograd.grad(loss_BT.sum(), logprobs_BT)[0], torch.tensor([[0.0, 2.5, 0.0]])
    )
    assert not metrics["kl"].requires_grad

"""GSPO, CISPO and REINFORCE: values and gradients by hand."""

from __future__ import annotations

import math

import torch

from rmrl.algorithms.losses.cispo import cispo
from rmrl.algorithms.losses.gspo import gspo
from rmrl.algorithms.losses.reinforce import reinforce
from rmrl.config.schema.actor import ActorConfig
from rmrl.types import LossInputs

# ratios 2 and 0.5 | 1.21 and 1 | 2 and 2; the last token of row 1 does not count
RATIOS_BT = torch.tensor([[2.0, 0.5, 1.0], [1.21, 1.0, 99.0], [2.0, 2.0, 2.0]])
MASK_BT = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
ADVANTAGES_BT = torch.tensor([[1.0], [-2.0], [1.0]]).expand(3, 3) * MASK_BT


def inputs() -> LossInputs:
    logprobs_BT = torch.full((3, 3), -0.5).requires_grad_()
    return LossInputs(
        logprobs_BT=logprobs_BT,
        old_logprobs_BT=-0.5 - RATIOS_BT.log(),
        advantages_BT=ADVANTAGES_BT,
        mask_BT=MASK_BT,
    )


def gradient(loss_BT: torch.Tensor, batch: LossInputs) -> torch.Tensor:
    return torch.autograd.grad(loss_BT.sum(), batch.logprobs_BT)[0]


def test_gspo_clips_whole_sequences() -> None:
    batch = inputs()
    loss_BT, metrics = gspo(batch, settings=ActorConfig(clip_ratio=0.2))
    # geometric means: (2 * 0.5 * 1)^(1/3) = 1; (1.21 * 1)^(1/2) = 1.1; 2, which is clipped to 1.2
    expected_BT = torch.tensor([[-1.0, -1.0, -1.0], [2.2, 2.2, 0.0], [-1.2, -1.2, -1.2]])
    torch.testing.assert_close(loss_BT, expected_BT)
    torch.testing.assert_close(
        gradient(loss_BT, batch),
        torch.tensor([[-1.0, -1.0, -1.0], [2.2, 2.2, 0.0], [0.0, 0.0, 0.0]]),
    )
    assert metrics["clip_fraction"].item() == 3


def test_gspo_token_mean_has_the_gradient_of_the_sequence_ratio() -> None:
    batch = inputs()
    loss_BT, _ = gspo(batch, settings=ActorConfig(clip_ratio=9.0))
    per_token_BT = gradient(loss_BT / MASK_BT.sum(1, keepdim=True), batch)
    mean_B = ((batch.logprobs_BT - batch.old_logprobs_BT) * MASK_BT).sum(1) / MASK_BT.sum(1)
    exact_BT = torch.autograd.grad((-ADVANTAGES_BT[:, 0] * mean_B.exp()).sum(), batch.logprobs_BT)[
        0
    ]
    torch.testing.assert_close(per_token_BT, exact_BT)


def test_cispo_bounds_the_weight_and_keeps_the_gradient() -> None:
    batch = inputs()
    loss_BT, metrics = cispo(batch, settings=ActorConfig(clip_ratio_low=0.2, clip_ratio_high=0.3))
    weights_BT = torch.tensor([[1.3, 0.8, 1.0], [1.21, 1.0, 0.0], [1.3, 1.3, 1.3]])
    torch.testing.assert_close(
        loss_BT, 0.5 * weights_BT * ADVANTAGES_BT
    )  # -w A logp with logp = -0.5
    torch.testing.assert_close(gradient(loss_BT, batch), -weights_BT * ADVANTAGES_BT)
    assert metrics["clip_fraction"].item() == 5


def test_cispo_open_below() -> None:
    loss_BT, _ = cispo(inputs(), settings=ActorConfig(clip_ratio_low=1.0, clip_ratio_high=0.3))
    assert math.isclose(loss_BT[0, 1].item(), 0.25, rel_tol=1e-6)  # weight 0.5, A 1, logp -0.5


def test_reinforce_ignores_the_old_policy() -> None:
    batch = inputs()
    loss_BT, metrics = reinforce(batch, settings=ActorConfig())
    torch.testing.assert_close(loss_BT, 0.5 * ADVANTAGES_BT)
    torch.testing.assert_close(gradient(loss_BT, batch), -ADVANTAGES_BT)
    assert math.isclose(metrics["ratio"].item(), 2 + 0.5 + 1 + 1.21 + 1 + 6, rel_tol=1e-5)

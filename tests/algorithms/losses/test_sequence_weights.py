"""VESPO, TOPR and LUSPO: weights and gradients of whole responses by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rmrl.algorithms import LOSSES
from rmrl.algorithms.aggregate import divisor, token_weights, total_weight
from rmrl.algorithms.losses.topr import topr
from rmrl.algorithms.losses.vespo import vespo
from rmrl.config.schema.actor import ActorConfig
from rmrl.types import LossInputs

# products 1 | 2 (the last token does not count) | 0.25
RATIOS_BT = torch.tensor([[2.0, 0.5, 1.0], [4.0, 0.5, 99.0], [0.5, 0.5, 1.0]])
MASK_BT = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])


def inputs(advantages: tuple[float, float, float] = (1.0, 2.0, -3.0)) -> LossInputs:
    return LossInputs(
        logprobs_BT=torch.full((3, 3), -0.5).requires_grad_(),
        old_logprobs_BT=-0.5 - RATIOS_BT.log(),
        advantages_BT=torch.tensor(advantages)[:, None].expand(3, 3) * MASK_BT,
        mask_BT=MASK_BT,
    )


def gradient(loss_BT: torch.Tensor, batch: LossInputs) -> torch.Tensor:
    return torch.autograd.grad(loss_BT.sum(), batch.logprobs_BT)[0]


def test_vespo_weighs_a_response_by_its_whole_ratio():
    batch = inputs()
    loss_BT, metrics = vespo(batch, settings=ActorConfig())
    # A >= 0, k 2, lambda 3: w = 1 weighs 1; w = 2 weighs 2^2 e^-3
    # A < 0, k 3, lambda 2: w = 1/4 weighs (1/4)^3 e^(2 * 3/4)
    weights_B1 = torch.tensor([[1.0], [4 * math.exp(-3)], [math.exp(1.5) / 64]])
    torch.testing.assert_close(gradient(loss_BT, batch), -weights_B1 * batch.advantages_BT)
    # 3 tokens of weight 1, 2 of 4 e^-3, 3 of e^1.5 / 64
    expected = 3 + 8 * math.exp(-3) + 3 * math.exp(1.5) / 64
    assert metrics["sequence_weight"].item() == pytest.approx(expected)


def test_vespo_has_its_largest_weight_at_k_over_lambda():
    log_w = torch.linspace(-3, 2, 501)
    batch = LossInputs(
        logprobs_BT=log_w[:, None].clone().requires_grad_(),
        old_logprobs_BT=torch.zeros(501, 1),
        advantages_BT=torch.ones(501, 1),
        mask_BT=torch.ones(501, 1),
    )
    weights_BT = -gradient(vespo(batch, settings=ActorConfig())[0], batch)
    assert log_w[int(weights_BT.argmax())].item() == pytest.approx(math.log(2 / 3), abs=0.01)


def test_vespo_and_topr_stay_finite_for_any_ratio():
    batch = replace(inputs(), old_logprobs_BT=torch.full((3, 3), -9000.0))
    for loss in (vespo, topr):
        loss_BT, _ = loss(batch, settings=ActorConfig())
        assert loss_BT.isfinite().all()


def test_topr_tapers_bad_responses_alone():
    batch = inputs((1.0, -2.0, -3.0))
    loss_BT, metrics = topr(batch, settings=ActorConfig())
    # good: 1 whatever its ratio; bad: 2 is cut to 1; 1/4 stays
    weights_B1 = torch.tensor([[1.0], [1.0], [0.25]])
    torch.testing.assert_close(gradient(loss_BT, batch), -weights_B1 * batch.advantages_BT)
    assert metrics["clip_fraction"].item() == 3


def test_topr_trains_an_unlikely_good_response_in_full():
    batch = inputs((1.0, 2.0, 3.0))
    loss_BT, _ = topr(batch, settings=ActorConfig())
    torch.testing.assert_close(gradient(loss_BT, batch), -batch.advantages_BT)


@pytest.mark.parametrize("name", ["vespo", "topr", "ipo", "dppo_tv"])
def test_the_policy_that_sampled_is_the_rollout_engines_where_there_is_one(name: str):
    settings = ActorConfig(clip_ratio=0.01)
    plain = inputs()
    rollout = replace(
        plain,
        rollout_logprobs_BT=plain.old_logprobs_BT,
        old_logprobs_BT=torch.full((3, 3), -0.7),
    )
    corrected = replace(rollout, rollout_weights_BT=torch.ones(3, 3))
    of_sampler_BT, of_rollout_BT, of_old_BT = (
        LOSSES[name](batch, settings=settings)[0] for batch in (plain, rollout, corrected)
    )
    torch.testing.assert_close(of_rollout_BT, of_sampler_BT)
    assert not torch.allclose(of_old_BT, of_sampler_BT)


def test_luspo_is_the_sequence_ratio_times_the_length():
    batch = inputs()
    settings = ActorConfig(clip_ratio=9.0)
    loss_BT, _ = LOSSES["luspo"](batch, settings=settings)
    mode = "seq-mean-token-sum"
    weights_BT = token_weights(MASK_BT, mode, max_length=3)
    weight = total_weight(MASK_BT, mode, max_length=3).item()
    ours = (loss_BT * weights_BT).sum() / divisor(weight, mode)
    lengths_B = MASK_BT.sum(1)
    log_ratios_BT = (batch.logprobs_BT - batch.old_logprobs_BT) * MASK_BT
    ratio_B = (log_ratios_BT.sum(1) / lengths_B).exp()
    exact = (-batch.advantages_BT[:, 0] * ratio_B * lengths_B).mean()
    assert ours.item() == pytest.approx(exact.item(), rel=1e-6)
    torch.testing.assert_close(
        torch.autograd.grad(ours, batch.logprobs_BT)[0],
        torch.autograd.grad(exact, batch.logprobs_BT)[0],
    )

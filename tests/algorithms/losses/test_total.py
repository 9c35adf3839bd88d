"""The composition of policy loss, KL and entropy."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rmrl.algorithms.losses.total import total_loss
from rmrl.config.schema.actor import ActorConfig, PolicyLossConfig
from rmrl.errors import ConfigError
from rmrl.types import LossInputs

MASK_BT = torch.tensor([[1.0, 1.0, 0.0]])
INPUTS = LossInputs(
    logprobs_BT=torch.tensor([[-1.0, -2.0, math.nan]]),
    old_logprobs_BT=torch.tensor([[-1.0, -2.0, math.inf]]),
    advantages_BT=torch.tensor([[1.0, -0.5, math.nan]]),
    mask_BT=MASK_BT,
    ref_logprobs_BT=torch.tensor([[-1.5, -1.0, math.nan]]),
    entropy_BT=torch.tensor([[0.3, 0.7, math.nan]]),
)


def test_all_terms_add_up_and_padding_is_zero() -> None:
    settings = ActorConfig(
        entropy_coeff=0.1, use_kl_loss=True, kl_loss_coef=0.2, kl_loss_type="mse"
    )
    loss_BT, metrics = total_loss(INPUTS, settings=settings)
    # policy -1, 0.5; k2 0.125, 0.5; entropy 0.3, 0.7
    torch.testing.assert_close(loss_BT, torch.tensor([[-1 + 0.025 - 0.03, 0.5 + 0.1 - 0.07, 0.0]]))
    found = {name: value.item() for name, value in metrics.items()}
    expected = {
        "policy_loss": -0.5,
        "ref_kl": 0.625,
        "entropy": 1.0,
        "ratio": 2.0,
        "kl": 0.0,
        "clip_fraction": 0.0,
        "clip_fraction_low": 0.0,
    }
    assert found == pytest.approx(expected)


def test_terms_that_are_off_change_nothing() -> None:
    loss_BT, metrics = total_loss(INPUTS, settings=ActorConfig())
    torch.testing.assert_close(loss_BT, torch.tensor([[-1.0, 0.5, 0.0]]))
    assert "ref_kl" not in metrics
    assert metrics["entropy"].item() == pytest.approx(1.0)  # reported where it is known
    without_BT, metrics = total_loss(replace(INPUTS, entropy_BT=None), settings=ActorConfig())
    assert torch.equal(without_BT, loss_BT)
    assert "entropy" not in metrics


def test_entropy_and_kl_carry_gradients_only_when_asked() -> None:
    entropy_BT = torch.ones(1, 3, requires_grad=True)
    logprobs_BT = INPUTS.logprobs_BT.clone().requires_grad_()
    inputs = replace(
        INPUTS, entropy_BT=entropy_BT, logprobs_BT=logprobs_BT, advantages_BT=torch.zeros(1, 3)
    )
    settings = ActorConfig(
        entropy_coeff=0.1, use_kl_loss=True, kl_loss_coef=0.2, kl_loss_type="mse"
    )
    total_loss(inputs, settings=settings)[0].sum().backward()
    torch.testing.assert_close(entropy_BT.grad, torch.tensor([[-0.1, -0.1, 0.0]]))
    torch.testing.assert_close(
        logprobs_BT.grad, torch.tensor([[0.2 * 0.5, 0.2 * -1.0, 0.0]])
    )  # coef * (logp - ref)


def test_rollout_weights_multiply_the_policy_loss_alone() -> None:
    inputs = replace(INPUTS, rollout_weights_BT=torch.tensor([[2.0, 0.5, math.nan]]))
    settings = ActorConfig(
        entropy_coeff=0.1, use_kl_loss=True, kl_loss_coef=0.2, kl_loss_type="mse"
    )
    loss_BT, metrics = total_loss(inputs, settings=settings)
    # policy -1 * 2, 0.5 * 0.5; KL and entropy as before
    torch.testing.assert_close(loss_BT, torch.tensor([[-2 + 0.025 - 0.03, 0.25 + 0.1 - 0.07, 0.0]]))
    assert metrics["policy_loss"].item() == pytest.approx(-1.75)
    assert metrics["rollout_weight"].item() == pytest.approx(2.5)


def test_a_users_own_loss_needs_no_table_line() -> None:
    settings = ActorConfig(
        policy_loss=PolicyLossConfig(loss_mode="rmrl.algorithms.losses.reinforce:reinforce")
    )
    torch.testing.assert_close(
        total_loss(INPUTS, settings=settings)[0], torch.tensor([[1.0, -1.0, 0.0]])
    )


def test_missing_inputs_and_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"use_kl_loss=true needs ref_logprobs"):
        total_loss(replace(INPUTS, ref_logprobs_BT=None), settings=ActorConfig(use_kl_loss=True))
    for coefficient in (0.01, 1.0):
        with pytest.raises(ConfigError, match=rf"entropy_coeff={coefficient} needs the entropy"):
            total_loss(
                replace(INPUTS, entropy_BT=None), settings=ActorConfig(entropy_coeff=coefficient)
            )
    with pytest.raises(ConfigError, match=r"did you mean 'vanilla'\?"):
        total_loss(INPUTS, settings=ActorConfig(policy_loss=PolicyLossConfig(loss_mode="vanila")))


# --- ratio-weighted KL


@pytest.mark.parametrize("kind", ["kl", "low_var_kl"])
def test_weighted_by_the_ratio_the_kl_term_has_the_gradient_of_the_kl(kind: str) -> None:
    """Three tokens drawn from pi_old; the exact KL(pi_new || ref) and its gradient by autograd."""
    logits_V = torch.tensor([0.3, -0.2, 0.5], requires_grad=True)
    old_V = torch.tensor([0.5, 0.3, 0.2]).log()
    ref_V = torch.tensor([0.2, 0.2, 0.6]).log()
    new_V = logits_V.log_softmax(-1)
    exact = (new_V.exp() * (new_V - ref_V)).sum()
    (wanted_V,) = torch.autograd.grad(exact, logits_V, retain_graph=True)

    def term(weighted: bool) -> torch.Tensor:
        inputs = LossInputs(
            logprobs_BT=new_V[:, None],
            old_logprobs_BT=old_V[:, None],
            advantages_BT=torch.zeros(3, 1),
            mask_BT=torch.ones(3, 1),
            ref_logprobs_BT=ref_V[:, None],
        )
        settings = ActorConfig(
            use_kl_loss=True, kl_loss_coef=1.0, kl_loss_type=kind, ratio_weighted_kl=weighted
        )
        loss_BT, _ = total_loss(inputs, settings=settings)
        return (old_V.exp() * loss_BT[:, 0]).sum()

    weighted = term(True)
    assert weighted.item() == pytest.approx(exact.item(), rel=1e-5)
    (gradient_V,) = torch.autograd.grad(weighted, logits_V, retain_graph=True)
    torch.testing.assert_close(gradient_V, wanted_V)
    (plain_V,) = torch.autograd.grad(term(False), logits_V)
    assert not torch.allclose(plain_V, wanted_V, atol=1e-2)


# --- imitation of successes


def test_the_likelihood_of_successes_is_added_with_its_weight() -> None:
    weights_BT = torch.tensor([[0.1, 0.0, math.nan]])
    loss_BT, metrics = total_loss(
        replace(INPUTS, nll_weights_BT=weights_BT), settings=ActorConfig()
    )
    # policy -1, 0.5; -log pi of the first token is 1
    torch.testing.assert_close(loss_BT, torch.tensor([[-0.9, 0.5, 0.0]]))
    assert metrics["positive_nll"].item() == pytest.approx(0.1)
    assert metrics["policy_loss"].item() == pytest.approx(-0.5)

"""What every advantage estimator and every policy loss must hold, over all names of both tables."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import fields, replace

import pytest
import torch

from rmrl.algorithms import ADVANTAGES, LOSSES
from rmrl.algorithms.losses.total import total_loss
from rmrl.config.schema.actor import ActorConfig
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs, Advantages, LossInputs

B, T = 6, 5
LENGTHS_B = torch.tensor([5, 3, 1, 0, 4, 2])
MASK_BT = (torch.arange(T) < LENGTHS_B[:, None]).float()
PER_ROW = ("rewards_B", "group_ids_B", "response_mask_BT", "token_rewards_BT", "values_BT")


def advantage_inputs(garbage: float = 0.0) -> AdvantageInputs:
    """Random numbers, the same in every call; `garbage` stands outside the mask."""
    generator = torch.Generator().manual_seed(0)

    def stream() -> torch.Tensor:
        return torch.randn(B, T, generator=generator).where(MASK_BT > 0, garbage)

    return AdvantageInputs(
        rewards_B=torch.randn(B, generator=generator),
        group_ids_B=torch.tensor([3, 8, 3, 8, 3, 5]),
        response_mask_BT=MASK_BT.clone(),
        token_rewards_BT=stream(),
        values_BT=stream(),
    )


def loss_inputs(garbage: float = 0.0) -> LossInputs:
    generator = torch.Generator().manual_seed(1)

    def stream(scale: float = 0.3) -> torch.Tensor:
        return (scale * torch.randn(B, T, generator=generator) - 1).where(MASK_BT > 0, garbage)

    return LossInputs(
        logprobs_BT=stream().requires_grad_(),
        old_logprobs_BT=stream(),
        advantages_BT=stream(2.0),
        mask_BT=MASK_BT.clone(),
        ref_logprobs_BT=stream(),
        entropy_BT=stream(),
    )


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages_shape_padding_and_metrics(name: str) -> None:
    found = ADVANTAGES[name](advantage_inputs(float("nan")), settings=AlgorithmConfig())
    assert isinstance(found, Advantages)
    for tensor_BT in (found.advantages_BT, found.returns_BT):
        if tensor_BT is not None:
            assert tensor_BT.shape == (B, T)
            assert tensor_BT.dtype == torch.float32
            assert tensor_BT.isfinite().all()
            assert (tensor_BT[MASK_BT == 0] == 0).all()
    assert found.advantages_BT.abs().max() > 0.1
    assert all(isinstance(value, float) and math.isfinite(value) for value in found.metrics.values())


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages_are_deterministic_and_change_no_input(name: str) -> None:
    inputs = advantage_inputs()
    first, second = (ADVANTAGES[name](inputs, settings=AlgorithmConfig()) for _ in range(2))
    assert torch.equal(first.advantages_BT, second.advantages_BT)
    for before, field in zip((getattr(advantage_inputs(), f.name) for f in fields(inputs)), fields(inputs), strict=True):
        assert before is None or torch.equal(before, getattr(inputs, field.name))


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages_do_not_depend_on_row_order(name: str) -> None:
    inputs, order = advantage_inputs(), torch.tensor([4, 0, 3, 5, 2, 1])
    shuffled = replace(inputs, **{field: getattr(inputs, field)[order] for field in PER_ROW})
    expected_BT = ADVANTAGES[name](inputs, settings=AlgorithmConfig()).advantages_BT[order]
    torch.testing.assert_close(ADVANTAGES[name](shuffled, settings=AlgorithmConfig()).advantages_BT, expected_BT, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages_of_an_empty_batch(name: str) -> None:
    inputs = advantage_inputs()
    empty = replace(inputs, **{field: getattr(inputs, field)[:0] for field in PER_ROW})
    assert ADVANTAGES[name](empty, settings=AlgorithmConfig()).advantages_BT.shape == (0, T)


@pytest.mark.parametrize("name", LOSSES)
def test_loss_shape_padding_gradient_and_sums(name: str) -> None:
    inputs = loss_inputs(float("nan"))
    settings = ActorConfig(policy_loss=name, use_kl_loss=True, entropy_coeff=0.01)
    loss_BT, metrics = total_loss(inputs, settings=settings)
    loss_BT.sum().backward()
    assert loss_BT.shape == (B, T)
    assert loss_BT.isfinite().all()
    assert inputs.logprobs_BT.grad is not None
    assert inputs.logprobs_BT.grad.isfinite().all()
    assert (inputs.logprobs_BT.grad[MASK_BT == 0] == 0).all()
    assert (inputs.logprobs_BT.grad[MASK_BT > 0] != 0).any()
    assert {"policy_loss", "entropy", "ref_kl", "ratio", "kl"} <= metrics.keys()
    for value in metrics.values():
        assert value.shape == ()
        assert not value.requires_grad
        assert value.isfinite()


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_sums_add_up_over_micro_batches(name: str) -> None:
    settings, inputs = ActorConfig(policy_loss=name), loss_inputs()
    whole_BT, whole = LOSSES[name](inputs, settings=settings)
    halves = [
        replace(inputs, **{f.name: None if getattr(inputs, f.name) is None else getattr(inputs, f.name)[rows] for f in fields(inputs)})
        for rows in (slice(0, 2), slice(2, None))
    ]
    (top_BT, top), (bottom_BT, bottom) = (LOSSES[name](half, settings=settings) for half in halves)
    torch.testing.assert_close(torch.cat([top_BT, bottom_BT]), whole_BT)
    assert {key: (top[key] + bottom[key]).item() for key in whole} == pytest.approx({key: whole[key].item() for key in whole}, rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_on_policy_every_loss_has_the_policy_gradient(name: str) -> None:
    inputs = loss_inputs()
    inputs = replace(inputs, old_logprobs_BT=inputs.logprobs_BT.detach().clone())
    loss_BT, metrics = LOSSES[name](inputs, settings=ActorConfig())
    gradient_BT = torch.autograd.grad(loss_BT.sum(), inputs.logprobs_BT)[0]
    torch.testing.assert_close(gradient_BT, -inputs.advantages_BT * MASK_BT)
    assert metrics["ratio"].item() == MASK_BT.sum().item()
    assert metrics["kl"].item() == 0


def test_importing_the_tables_imports_no_torch() -> None:
    code = "import sys, rmrl.algorithms; print([m for m in ('torch', 'ray', 'vllm', 'transformers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout.strip() == "[]"

"""What a step changes and what it leaves alone; one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rmrl.backends.base import ProcessSettings
from tests.backends.megatron import by_hand
from tests.backends.megatron.tiny import write_tiny

ALONE = ProcessSettings(threads=1, timeout_s=60)
BuildPart = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("models"), "qwen2")  # with biases


@pytest.fixture(scope="module")
def build(folder: Path) -> Iterator[BuildPart]:
    """Parts of one process that share its groups."""
    from rmrl.backends.megatron import groups
    from rmrl.backends.megatron.part import MegatronPart
    from rmrl.backends.process_group import leave_group

    yield lambda **megatron: MegatronPart(by_hand.make_settings(folder, **megatron), ALONE)
    groups.leave()
    leave_group()


def weights_of(part: Any) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in part.weights(None)}


def gradients_of(part: Any) -> list[Tensor]:
    return [
        parameter.main_grad for module in part.model.modules for parameter in module.parameters()
    ]


@pytest.mark.parametrize("distributed", [True, False])
def test_weight_decay_reaches_every_parameter(build: BuildPart, distributed: bool):
    part = build(use_distributed_optimizer=distributed)
    before = weights_of(part)
    assert any(name.endswith("bias") for name in before)
    assert any("norm" in name for name in before)
    assert part.step(0.1) == 0.0  # no gradient
    for name, tensor in weights_of(part).items():
        torch.testing.assert_close(
            tensor,
            before[name] * (1 - 0.1 * by_hand.OPTIM.weight_decay),
            msg=lambda text, name=name: f"{name}: {text}",
        )


@pytest.mark.parametrize("distributed", [True, False])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_changes_nothing(
    build: BuildPart, distributed: bool, value: float
):
    """Neither weights nor averages: the next step is as though there had been no such one."""
    part, other = (
        build(use_distributed_optimizer=distributed),
        build(use_distributed_optimizer=distributed),
    )
    by_hand.train_step(part, 0, ALONE)
    by_hand.train_step(other, 0, ALONE)
    before = weights_of(part)
    gradients_of(part)[3].view(-1)[2] = value
    assert not math.isfinite(part.step(by_hand.LR))
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights_of(part).items())
    assert all(not gradient.any() for gradient in gradients_of(part))
    assert by_hand.train_step(part, 1, ALONE) == by_hand.train_step(other, 1, ALONE)
    after = weights_of(other)
    assert all(torch.equal(tensor, after[name]) for name, tensor in weights_of(part).items())


@pytest.mark.parametrize(("max_norm", "factor"), [(0.0, 1.0), (-1.0, 1.0), (10.0, 1.0), (2.5, 0.5)])
def test_gradients_are_scaled_to_the_largest_norm(build: BuildPart, max_norm: float, factor: float):
    part = build(use_distributed_optimizer=False)
    first, *others = gradients_of(part)
    first.view(-1)[:2] = torch.tensor([3.0, 4.0])
    seen: list[Tensor] = []
    inner = part._optimizer.inner
    inner.step_with_ready_grads = lambda: seen.append(first.view(-1)[:2].clone())
    assert part._optimizer.step(0.0, max_norm) == pytest.approx(5.0)
    torch.testing.assert_close(seen[0], torch.tensor([3.0, 4.0]) * factor, atol=1e-6, rtol=0)
    assert all(not gradient.any() for gradient in (first, *others))


def test_how_rows_are_cut_does_not_matter(build: BuildPart):
    whole, cut = build(), build()
    for step in range(2):
        loss, norm = by_hand.train_step(whole, step, ALONE, tokens=10_000)
        assert by_hand.train_step(cut, step, ALONE, tokens=1) == pytest.approx(
            (loss, norm), rel=1e-5
        )
    expected = weights_of(whole)
    for name, tensor in weights_of(cut).items():
        torch.testing.assert_close(
            tensor, expected[name], atol=1e-5, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("distributed", [True, False])
def test_a_step_at_rate_zero_changes_nothing(build: BuildPart, dtype: str, distributed: bool):
    """The rate is that of the step, and master weights are those of the checkpoint."""
    part = build(dtype=dtype, use_distributed_optimizer=distributed)
    before = weights_of(part)
    by_hand.train_step(part, 0, ALONE, lr=0.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights_of(part).items())


@pytest.mark.parametrize("distributed", [True, False])
def test_master_weights_follow_loaded_ones(build: BuildPart, distributed: bool):
    """bfloat16 weights are rounded master weights; these have to be the checkpoint's before the
    first step and after any reload."""
    part = build(dtype="bfloat16", use_distributed_optimizer=distributed)
    with torch.no_grad():
        for module in part.model.modules:
            for parameter in module.parameters():
                parameter.fill_(0.5)
    part._optimizer.reload()
    part.step(0.1)
    wanted = torch.tensor(0.5 * (1 - 0.1 * by_hand.OPTIM.weight_decay)).bfloat16()
    assert all((tensor == wanted).all() for tensor in weights_of(part).values())


def test_a_bfloat16_step_is_near_a_float32_one(build: BuildPart):
    exact, rounded = (
        by_hand.train_step(build(dtype=dtype), 0, ALONE) for dtype in ("float32", "bfloat16")
    )
    assert rounded == pytest.approx(exact, rel=2e-2)

"""Vocabulary-parallel log-probabilities and entropies: hand-computed, and against torch over the
whole vocabulary, gradients included."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from rmrl.backends.base import ProcessSettings
from rmrl.backends.megatron.logprobs import vocab_parallel_logprobs
from rmrl.backends.process_group import join_group, leave_group


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    join_group(ProcessSettings(), "cpu")
    yield dist.group.WORLD
    leave_group()


def of_logits(
    group: Any, logits: Tensor, targets: list[int], **options: Any
) -> tuple[Tensor, Tensor | None]:
    """`logits` are the hidden states: the head is the identity."""
    settings = {
        "temperature": 1.0,
        "entropy": "none",
        "vocab": logits.shape[1],
        "slice_rows": 100,
        **options,
    }
    return vocab_parallel_logprobs(
        logits, torch.tensor(targets), head=lambda hidden: hidden, group=group, **settings
    )


def test_probabilities_of_one_quarter_and_padding_that_would_have_won(group: Any) -> None:
    # exp: 1, 2, 5 and a padded column that would be nearly everything. p = 1/8, 2/8, 5/8.
    logits = torch.tensor([[0.0, math.log(2), math.log(5), 50.0]] * 3)
    logprobs, entropy = of_logits(group, logits, [0, 1, 2], vocab=3, entropy="detached")
    assert logprobs.tolist() == pytest.approx(
        [math.log(1 / 8), math.log(1 / 4), math.log(5 / 8)], abs=1e-6
    )
    # -(1/8 ln 1/8 + 1/4 ln 1/4 + 5/8 ln 5/8) = 0.25993 + 0.34657 + 0.29375
    assert entropy.tolist() == pytest.approx([0.900256] * 3, abs=1e-5)
    assert logprobs.dtype == entropy.dtype == torch.float32


def test_temperature_divides_the_logits(group: Any) -> None:
    # 2 ln 2 / 2 = ln 2: p = 1/3, 2/3
    logprobs, entropy = of_logits(
        group, torch.tensor([[0.0, 2 * math.log(2)]]), [1], temperature=2.0
    )
    assert logprobs.tolist() == pytest.approx([math.log(2 / 3)], abs=1e-6)
    assert entropy is None


@torch.no_grad()
def test_energies_by_hand(group: Any) -> None:
    # p = 1/8, 2/8, 5/8: sum of squares 30/64; 1 - 2 p + 30/64, the padding has no part
    logits = torch.tensor([[0.0, math.log(2), math.log(5), 50.0]] * 3)
    logprobs, energies = of_logits(group, logits, [0, 1, 2], vocab=3, entropy="energy")
    assert energies.tolist() == pytest.approx([78 / 64, 62 / 64, 14 / 64], abs=1e-6)
    assert logprobs.tolist() == of_logits(group, logits, [0, 1, 2], vocab=3)[0].tolist()
    assert of_logits(group, torch.zeros(0, 5), [], entropy="energy")[1].shape == (0,)


def test_gradients_by_hand(group: Any) -> None:
    logits = torch.tensor([[0.0, math.log(3), 9.0]], requires_grad=True)  # p = 1/4, 3/4, padding
    logprobs, entropy = of_logits(group, logits, [0], vocab=2, entropy="grad")
    (grad,) = torch.autograd.grad(logprobs.sum(), logits, retain_graph=True)
    assert grad.tolist() == [pytest.approx([0.75, -0.75, 0.0], abs=1e-6)]  # 1[v = t] - p
    (grad,) = torch.autograd.grad(entropy.sum(), logits)
    # H = 0.562335; -p (ln p + H): -0.25 * (-1.386294 + 0.562335) = 0.205990
    assert grad.tolist() == [pytest.approx([0.205990, -0.205990, 0.0], abs=1e-5)]


def test_a_detached_entropy_has_no_gradient(group: Any) -> None:
    logits = torch.randn(2, 5, requires_grad=True)
    assert not of_logits(group, logits, [0, 1], entropy="detached")[1].requires_grad
    assert of_logits(group, logits, [0, 1], entropy="grad")[1].requires_grad


def test_bfloat16_logits_are_summed_in_float32(group: Any) -> None:
    logits = torch.randn(4, 200).bfloat16().requires_grad_()
    logprobs, _ = of_logits(group, logits, [0, 5, 9, 199])
    expected = torch.log_softmax(logits.double(), -1)[range(4), [0, 5, 9, 199]]
    assert (logprobs - expected).abs().max() < 1e-6
    logprobs.sum().backward()
    assert logits.grad.dtype == torch.bfloat16


def test_without_positions_nothing_fails(group: Any) -> None:
    hidden = torch.zeros(0, 5, requires_grad=True)
    logprobs, entropy = of_logits(group, hidden, [], entropy="grad")
    assert logprobs.shape == entropy.shape == (0,)
    (logprobs.sum() + entropy.sum()).backward()

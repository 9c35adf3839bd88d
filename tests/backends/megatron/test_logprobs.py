"""Vocabulary-parallel log-probabilities and entropies: hand-computed, and against torch over the
whole vocabulary, gradients included."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from rmrl.backends.base import ProcessSettings
from rmrl.backends.megatron.logprobs import vocab_parallel_logprobs
from rmrl.backends.process_group import join_group, leave_group
from rmrl.models.linear_head import LinearHead
from tests.backends.policies import run_group

VOCAB, HIDDEN, ROWS = 131, 16, 23


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


def problem() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states, a head, targets (first and last token among them) and a weight for each
    position."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, VOCAB, (ROWS,), generator=generator)
    targets[:2] = torch.tensor([0, VOCAB - 1])
    hidden, head = (
        torch.randn(ROWS, HIDDEN, generator=generator),
        torch.randn(VOCAB, HIDDEN, generator=generator),
    )
    return hidden, head, targets, torch.randn(ROWS, generator=generator)


def reference(temperature: float, entropy_weight: float) -> dict[str, Tensor]:
    """Over the whole vocabulary, in float64, by autograd."""
    hidden, head, targets, weight = problem()
    hidden, head = hidden.double().requires_grad_(), head.double().requires_grad_()
    log_p = torch.log_softmax(hidden @ head.T / temperature, -1)
    logprobs, entropy = log_p.gather(1, targets[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)
    ((logprobs + entropy_weight * entropy) * weight).sum().backward()
    return {"logprobs": logprobs, "entropy": entropy, "hidden": hidden.grad, "head": head.grad}


def against_torch(process: ProcessSettings) -> dict[str, float]:
    """Largest differences from `reference`, of all ways to cut the positions, in a group that
    shares the vocabulary."""
    join_group(process, "cpu")
    group, share = dist.group.WORLD, -(-VOCAB // process.world_size)
    hidden, head, targets, weight = problem()
    padded = torch.nn.functional.pad(
        head, (0, 0, 0, share * process.world_size - VOCAB), value=7.0
    )  # padding that would matter
    own = slice(process.rank * share, (process.rank + 1) * share)
    worst: dict[str, float] = {}
    for entropy, entropy_weight, slice_rows, kept_rows, through_module in [
        ("grad", 0.3, 100, 100, False),
        ("grad", 0.3, 5, 0, False),
        ("grad", 0.3, 5, 0, True),
        ("detached", 0.0, 7, 0, False),
    ]:
        hidden_leaf, head_leaf = (
            hidden.clone().requires_grad_(),
            padded[own].clone().requires_grad_(),
        )
        head_of_slice: Any = LinearHead(head_leaf)
        if through_module:
            head_of_slice = head_of_slice.__call__
        logprobs, entropies = vocab_parallel_logprobs(
            hidden_leaf,
            targets,
            head=head_of_slice,
            temperature=0.8,
            entropy=entropy,
            vocab=VOCAB,
            group=group,
            slice_rows=slice_rows,
            kept_rows=kept_rows,
        )
        ((logprobs + entropy_weight * entropies) * weight).sum().backward()
        dist.all_reduce(hidden_leaf.grad)
        expected = reference(0.8, entropy_weight)
        gradient = torch.nn.functional.pad(expected["head"], (0, 0, 0, len(padded) - VOCAB))[own]
        got = {"logprobs": logprobs, "entropy": entropies, "hidden": hidden_leaf.grad}
        differences = {
            name: float((value - expected[name]).abs().max()) for name, value in got.items()
        }
        differences["head"] = float((head_leaf.grad - gradient).abs().max())
        with torch.no_grad():
            _, energies = vocab_parallel_logprobs(
                hidden,
                targets,
                head=head_of_slice,
                temperature=0.8,
                entropy="energy",
                vocab=VOCAB,
                group=group,
                slice_rows=slice_rows,
            )
            p = (hidden @ head.T / 0.8).double().softmax(-1)
        of_targets = p.gather(1, targets[:, None])[:, 0]
        wrong = energies - (1 - 2 * of_targets + p.square().sum(-1))
        differences["energies"] = float(wrong.abs().max())
        worst = {name: max(value, worst.get(name, 0.0)) for name, value in differences.items()}
    leave_group()
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_same_as_torch_over_the_whole_vocabulary(processes: int, tmp_path: Path) -> None:
    worst = run_group(against_torch, processes, tmp_path)
    assert set(worst) == {"logprobs", "entropy", "hidden", "head", "energies"}
    assert max(worst.values()) < 1e-5, worst

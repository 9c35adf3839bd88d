"""Vocabulary-parallel log-probabilities in groups of processes, against torch over the whole
vocabulary, gradients included."""

from __future__ import annotations

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


@pytest.mark.parametrize("processes", [1, 2])
def test_same_as_torch_over_the_whole_vocabulary(processes: int, tmp_path: Path) -> None:
    worst = run_group(against_torch, processes, tmp_path)
    assert set(worst) == {"logprobs", "entropy", "hidden", "head", "energies"}
    assert max(worst.values()) < 1e-5, worst

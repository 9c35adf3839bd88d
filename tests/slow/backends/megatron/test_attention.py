"""Attention over rows that several processes share, within a model and alone."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from rmrl.backends.base import ProcessSettings
from rmrl.backends.megatron.attention import zigzag
from rmrl.backends.megatron.cpu import adapted
from rmrl.backends.megatron.groups import join
from tests.backends.megatron.test_attention import (
    CHANNELS,
    HEADS,
    alone,
    by_hand,
    core_attention,
    differences,
    heads,
    run_model,
)
from tests.backends.megatron.tiny import make_settings, write_tiny
from tests.backends.policies import run_group

__all__ = ["alone"]


def shared_row(process: ProcessSettings) -> list[float]:
    """One row over all processes: differences of the output and of the three gradients from the
    whole row's."""
    join(make_settings(Path("unread"), context_parallel_size=process.world_size), process)
    whole = [tensor.requires_grad_() for tensor in heads([24], rows=2)]
    weight = torch.randn(24, 2, HEADS * CHANNELS, generator=torch.Generator().manual_seed(2))
    expected = torch.stack(
        [by_hand(*(tensor[:, row] for tensor in whole)) for row in range(2)], dim=1
    )
    (expected * weight).sum().backward()
    own = zigzag(24, size=process.world_size, rank=process.rank)
    local = [tensor.detach()[own].requires_grad_() for tensor in whole]
    with adapted():
        output = core_attention()(*local, None)
        (output * weight[own]).sum().backward()
    differences = [
        (output - expected[own]),
        *(part.grad - tensor.grad[own] for part, tensor in zip(local, whole, strict=True)),
    ]
    return [worst(float(difference.abs().max())) for difference in differences]


def worst(value: float) -> float:
    largest = torch.tensor(value)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return largest.item()


def test_a_row_that_three_processes_share(tmp_path: Path) -> None:
    assert max(run_group(shared_row, 3, tmp_path)) < 1e-5


def shared_model(process: ProcessSettings, folder: str) -> list[float]:
    plain = torch.load(Path(folder) / "plain.pt")
    return [
        worst(value)
        for packed in (False, True)
        for value in differences(run_model(Path(folder), process, packed=packed), plain)
    ]


def test_positions_of_shared_rows_are_those_of_the_whole_row(alone: None, tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "model", "qwen3")
    torch.save(run_model(folder, ProcessSettings(), packed=False), folder / "plain.pt")
    assert max(run_group(shared_model, 2, tmp_path, str(folder))) < 2e-5

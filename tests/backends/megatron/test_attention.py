"""Attention over padded, packed and shared rows: against plain softmax in float64, and within a
model against the plain whole-row pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from rmrl.backends.base import ProcessSettings
from rmrl.backends.megatron.attention import PackedRows, SDPACoreAttention, zigzag
from rmrl.backends.megatron.cpu import adapted
from rmrl.backends.megatron.groups import join, leave
from rmrl.backends.megatron.model import build_model
from rmrl.backends.process_group import leave_group
from tests.backends.megatron.tiny import VOCABULARY, make_settings, write_tiny

LENGTHS = [12, 20, 8]
CHANNELS, HEADS, SHARED = 16, 4, 2


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """This process is a group of one."""
    join(make_settings(Path("unread")), ProcessSettings())
    yield
    leave()
    leave_group()


def heads(lengths: list[int], rows: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return tuple(
        torch.randn(sum(lengths), rows, n, CHANNELS, generator=generator)
        for n in (HEADS, HEADS // SHARED, HEADS // SHARED)
    )


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[S, n, d] -> [S, n * d], one position and head at a time, in float64."""
    output = torch.zeros(q.shape, dtype=torch.float64)
    for position in range(len(q)):
        for head in range(q.shape[1]):
            scores = (
                k[: position + 1, head // SHARED].double()
                @ q[position, head].double()
                / CHANNELS**0.5
            )
            output[position, head] = (
                torch.softmax(scores, 0) @ v[: position + 1, head // SHARED].double()
            )
    return output.flatten(1)


def core_attention() -> SDPACoreAttention:
    return SDPACoreAttention(SimpleNamespace(kv_channels=CHANNELS), 1)


def packed_rows(lengths: list[int]) -> PackedRows:
    boundaries = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    return PackedRows.of(lengths, boundaries)


def test_zigzag_gives_both_ends_of_the_triangle() -> None:
    assert zigzag(16, size=2, rank=0).tolist() == [0, 1, 2, 3, 12, 13, 14, 15]
    assert zigzag(16, size=2, rank=1).tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
    assert zigzag(6, size=1, rank=0).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match=r"18 positions .* multiple of 4"):
        zigzag(18, size=2, rank=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padded_rows(alone: None, dtype: torch.dtype) -> None:
    q, k, v = (tensor.to(dtype) for tensor in heads([10], rows=2))
    output = core_attention()(q, k, v, None)
    assert output.shape == (10, 2, HEADS * CHANNELS)
    assert output.dtype == dtype
    for row in range(2):
        assert (output[:, row] - by_hand(q[:, row], k[:, row], v[:, row])).abs().max() < (
            1e-5 if dtype is torch.float32 else 0.03
        )


def test_packed_rows_do_not_see_each_other(alone: None) -> None:
    q, k, v = (tensor[:, 0] for tensor in heads(LENGTHS))
    output = core_attention()(q, k, v, None, packed_seq_params=packed_rows(LENGTHS))
    rows = zip(q.split(LENGTHS), k.split(LENGTHS), v.split(LENGTHS), strict=True)
    assert (output - torch.cat([by_hand(*row) for row in rows])).abs().max() < 1e-5


def test_packed_rows_are_known_as_plain_numbers(
    alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer that reads lengths from a tensor waits for the device, once per layer."""
    rows = packed_rows(LENGTHS)
    assert rows.lengths == LENGTHS
    assert (rows.max_seqlen_q, rows.max_seqlen_kv) == (max(LENGTHS), max(LENGTHS))
    assert rows.cu_seqlens_q.device.type == "cpu"  # megatron-core's rotary embedding reads it
    assert rows.cu_seqlens_q.tolist() == rows.boundaries.tolist()
    heads_of_rows = [tensor[:, 0] for tensor in heads(LENGTHS)]

    def refuse(tensor: torch.Tensor) -> None:
        raise AssertionError(f"read from the device: {tensor.shape}")

    for name in ("tolist", "item", "__bool__"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    core_attention()(*heads_of_rows, None, packed_seq_params=rows)


def test_a_mask_is_refused(alone: None) -> None:
    with pytest.raises(AssertionError, match="right-padded"):
        core_attention()(*heads([4]), torch.ones(4, 4, dtype=torch.bool))


def run_model(folder: Path, process: ProcessSettings, *, packed: bool) -> dict[str, Any]:
    """Hidden states per row (this process's positions), and of a weighted sum of all of them the
    parameters' gradients."""
    size = process.world_size
    settings = make_settings(folder, context_parallel_size=size)
    model = build_model(settings, *join(settings, process))
    fill(model.chunks[0])
    tokens = [
        torch.randint(0, VOCABULARY, (n,), generator=torch.Generator().manual_seed(n))
        for n in LENGTHS
    ]
    weights = [torch.randn(n, 64, generator=torch.Generator().manual_seed(n)) for n in LENGTHS]
    padded = LENGTHS if packed else [max(LENGTHS)] * len(LENGTHS)
    held = [zigzag(length, size=size, rank=process.rank) for length in padded]
    ids = [
        torch.nn.functional.pad(row, (0, length - len(row)))[own]
        for row, length, own in zip(tokens, padded, held, strict=True)
    ]
    rows = torch.cat(ids)[None] if packed else torch.stack(ids)
    with adapted():
        hidden = model.modules[0](
            rows,
            torch.zeros_like(rows),
            None,
            packed_seq_params=packed_rows(LENGTHS) if packed else None,
        )
        per_row = list(hidden[0].split([len(own) for own in held]) if packed else hidden)
        real = [own < n for own, n in zip(held, LENGTHS, strict=True)]
        per_row = [row[mask] for row, mask in zip(per_row, real, strict=True)]
        held = [own[mask] for own, mask in zip(held, real, strict=True)]
        sum(
            (row * weight[own]).sum()
            for row, weight, own in zip(per_row, weights, held, strict=True)
        ).backward()
    gradients = {
        name: parameter.main_grad.clone() for name, parameter in model.chunks[0].named_parameters()
    }
    for gradient in gradients.values():
        dist.all_reduce(gradient)
    return {"hidden": [row.detach() for row in per_row], "held": held, "gradients": gradients}


def fill(chunk: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in chunk.parameters():
            parameter.copy_(
                (parameter.dim() == 1) + 0.1 * torch.randn(parameter.shape, generator=generator)
            )


def differences(got: dict[str, Any], plain: dict[str, Any]) -> tuple[float, float]:
    """Of hidden states, and of gradients relative to the largest of their parameter."""
    rows = zip(got["hidden"], plain["hidden"], got["held"], strict=True)
    hidden = max((row - whole[own]).abs().max().item() for row, whole, own in rows)
    gradients = [(gradient - plain["gradients"][name]).abs().max() / plain["gradients"][name].abs().max()
                 for name, gradient in got["gradients"].items()]  # fmt: skip
    return hidden, max(gradient.item() for gradient in gradients)


def test_positions_of_packed_rows_are_those_of_the_whole_row(alone: None, tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "model", "qwen3")
    plain, packed = (
        run_model(folder, ProcessSettings(), packed=packed) for packed in (False, True)
    )
    assert max(differences(packed, plain)) < 2e-5

"""Processes exchange pieces of tensors through files, and fail together."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from rmrl.backends.base import ProcessSettings
from rmrl.backends.process_group import join_group, leave_group
from rmrl.backends.storage import read_pieces, whole, write_pieces
from rmrl.errors import CheckpointError
from tests.backends.full_disk import full_disk
from tests.backends.policies import run_group
from tests.backends.test_storage import range_pieces


def exchange(process: ProcessSettings, folder: str) -> dict[str, Any]:
    """Two processes write the halves of a tensor and a replica each, and read the other half; then
    one of them finds something missing."""
    join_group(process, "cpu")
    rank, tensors = process.rank, Path(folder) / "tensors"
    numbers = torch.arange(15, dtype=torch.float32).view(5, 3)
    cut = [0, 8, 15]
    same = whole("same", torch.full((2,), 7.0))
    write_pieces(tensors, [*range_pieces("a", numbers.clone(), cut[rank], cut[rank + 1]), same])
    got, replica = torch.zeros(5, 3), torch.zeros(2)
    other = 1 - rank
    read_pieces(
        tensors, [*range_pieces("a", got, cut[other], cut[other + 1]), whole("same", replica)]
    )
    wanted = torch.zeros(15)
    wanted[cut[other] : cut[other + 1]] = numbers.flatten()[cut[other] : cut[other + 1]]
    right = torch.equal(got.flatten(), wanted) and replica.tolist() == [7.0, 7.0]
    problems = [
        _problem(
            lambda: read_pieces(tensors, [whole("a" if rank else "missing", torch.zeros(5, 3))])
        )
    ]
    with full_disk(100 if rank else resource.RLIM_INFINITY):
        problems.append(
            _problem(
                lambda: write_pieces(Path(folder) / "full", [whole(f"b{rank}", torch.zeros(100))])
            )
        )
    leave_group()
    (Path(folder) / f"{rank}.txt").write_text(f"{right}\n" + "\n".join(problems))
    return {}


def _problem(call: Any) -> str:
    try:
        call()
    except CheckpointError as error:
        return str(error)
    return "none"


def test_processes_exchange_and_fail_together(tmp_path: Path):
    run_group(exchange, 2, tmp_path, str(tmp_path))
    for rank in range(2):
        right, missing, full = (tmp_path / f"{rank}.txt").read_text().splitlines()
        assert right == "True"
        assert "holds no 'missing'" in missing
        assert "cannot be written" in full
    names = []
    for file in (tmp_path / "tensors").iterdir():
        with safe_open(file, framework="pt") as opened:
            names += list(opened.keys())
    assert sorted(names) == [
        "a",
        "a",
        "a",
        "a",
        "same",
    ]  # rows 0-1 and two numbers of row 2; its third number and rows 3-4

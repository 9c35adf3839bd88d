"""Training under layouts of one, two and four processes, against Hugging Face and torch's AdamW
written out by hand.

float32: log-probabilities and values 2e-5, losses 2e-6, gradient norms relative 1e-5, weights 1e-5
  (a step moves them by up to 1e-2).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rmrl.backends.base import ProcessSettings
from rmrl.backends.process_group import leave_group
from tests.backends.megatron import by_hand
from tests.backends.megatron.tiny import write_tiny
from tests.backends.policies import run_group

TENSOR, PIPELINE, CONTEXT = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
)
PACKED = {"use_remove_padding": True, "attn_implementation": "sdpa"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "one": {"processes": 1},
    "one-plain-optimizer": {"processes": 1, "use_distributed_optimizer": False},
    "one-packed": {"processes": 1, "model": PACKED},
    "one-critic": {"processes": 1, "role": "critic"},
    "tp2": {TENSOR: 2, "sequence_parallel": False},
    "tp2-sp": {TENSOR: 2},
    "tp2-sp-packed": {TENSOR: 2, "model": PACKED},
    "tp2-sp-critic": {TENSOR: 2, "role": "critic"},
    "pp2": {PIPELINE: 2},
    "pp2-untied": {PIPELINE: 2, "folder": "untied"},
    "pp2-packed-critic": {PIPELINE: 2, "model": PACKED, "role": "critic"},
    "pp2-vpp2": {PIPELINE: 2, "virtual_pipeline_model_parallel_size": 2},
    "pp2-vpp2-critic": {PIPELINE: 2, "virtual_pipeline_model_parallel_size": 2, "role": "critic"},
    "dp2": {},
    "dp2-plain-optimizer": {"use_distributed_optimizer": False},
    "dp2-overlap": {"override_ddp_config": {"overlap_grad_reduce": True}},
    "cp2": {CONTEXT: 2},
    "cp2-packed": {CONTEXT: 2, "model": PACKED},
    "cp2-critic": {CONTEXT: 2, "role": "critic"},
    "one-experts": {"processes": 1, "folder": "experts"},
    "ep2-dp2-experts": {"expert_model_parallel_size": 2, "folder": "experts"},
    "tp2-experts": {TENSOR: 2, "folder": "experts"},
    "tp2-pp2-sp": {"processes": 4, TENSOR: 2, PIPELINE: 2},
    "tp2-cp2-packed": {"processes": 4, TENSOR: 2, CONTEXT: 2, "model": PACKED},
    "cp2-pp2-vpp2-critic": {
        "processes": 4,
        CONTEXT: 2,
        PIPELINE: 2,
        "virtual_pipeline_model_parallel_size": 2,
        "role": "critic",
    },
    "pp2-vpp2-dp2": {"processes": 4, PIPELINE: 2, "virtual_pipeline_model_parallel_size": 2},
}

NUMBERS = {
    "before": {"abs": 2e-5},
    "after": {"abs": 2e-5},
    "energies": {"abs": 2e-5},
    "losses": {"abs": 2e-6},
    "norms": {"rel": 1e-5},
}
"""Entries of by_hand.Trained, and how near they are."""


def train_layouts(process: ProcessSettings, folder: str) -> dict[str, Any]:
    """Every layout of this number of processes, one after another in the same processes; weights go
    to files."""
    from rmrl.backends.megatron import groups
    from rmrl.backends.megatron.part import MegatronPart

    found = {}
    for name, layout in LAYOUTS.items():
        entries: dict[str, Any] = {"processes": 2, "role": "actor", "folder": "tied", **layout}
        if entries.pop("processes") != process.world_size:
            continue
        path = Path(folder) / entries.pop("folder")
        part = MegatronPart(by_hand.make_settings(path, entries.pop("role"), **entries), process)
        trained = by_hand.train_through_megatron(part, process)
        numbers = {entry: getattr(trained, entry) for entry in NUMBERS}
        total = part.total({"b": 2.0, "a": 1.0} if part.answers else {})
        found[name] = {
            **numbers,
            "packed": part.packed,
            "total": total,
            "shares": part.model.sizes.data,
        }
        if process.rank == 0:
            save_file(
                {key: tensor.contiguous() for key, tensor in trained.weights.items()},
                Path(folder) / f"{name}.safetensors",
            )
        groups.leave()
    leave_group()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_tiny(folder / "tied", "llama", seed=0)
    write_tiny(folder / "untied", "llama", seed=0, tied=False)
    write_tiny(folder / "experts", "qwen3_moe", seed=0)
    return folder


@pytest.fixture(scope="module")
def results(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for processes in (1, 2, 4):
        found |= run_group(
            train_layouts,
            processes,
            tmp_path_factory.mktemp(f"of{processes}"),
            str(folder),
        )
    return found


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[tuple[str, str], by_hand.Trained]:
    wanted = (("tied", "actor"), ("untied", "actor"), ("experts", "actor"), ("tied", "critic"))
    return {(name, role): by_hand.train_by_hand(folder / name, role) for name, role in wanted}


@pytest.mark.parametrize("name", LAYOUTS)
def test_three_steps_are_those_of_one_process(
    name: str, folder: Path, results: dict[str, Any], expected: dict[tuple[str, str], Any]
):
    layout = LAYOUTS[name]
    want = expected[layout.get("folder", "tied"), layout.get("role", "actor")]
    for entry, near in NUMBERS.items():
        assert results[name][entry] == pytest.approx(getattr(want, entry), **near), entry
    trained = load_file(folder / f"{name}.safetensors")
    assert trained.keys() == want.weights.keys()
    for key, weight in want.weights.items():
        torch.testing.assert_close(
            trained[key], weight, atol=1e-5, rtol=0, msg=lambda text, key=key: f"{key}: {text}"
        )


def test_sums_are_over_shares_and_not_over_processes(results: dict[str, Any]):
    for name, result in results.items():
        assert result["shares"] == (2 if "dp2" in name else 1)
        assert result["total"] == {"b": 2.0 * result["shares"], "a": 1.0 * result["shares"]}


def test_rows_are_packed_where_asked_and_under_virtual_stages(results: dict[str, Any]):
    packed = {name for name, result in results.items() if result["packed"]}
    assert packed == {
        name for name, layout in LAYOUTS.items() if "model" in layout or "vpp2" in name
    }


def test_the_steps_are_clipped_and_move_every_parameter(
    folder: Path, expected: dict[tuple[str, str], Any]
):
    """Otherwise the comparison would show less than it seems."""
    trained = expected["tied", "actor"]
    assert min(trained.norms) > by_hand.CLIP
    start = load_file(folder / "tied" / "model.safetensors")
    assert all(
        (weight - start[name]).abs().max() > 1e-3 for name, weight in trained.weights.items()
    )

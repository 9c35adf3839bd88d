"""Hugging Face weights into a Megatron model and out of it: the same logits, and every tensor back
bit by bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from rmrl.backends.base import ProcessSettings
from rmrl.backends.process_group import leave_group
from tests.backends.megatron.tiny import make_settings, write_tiny
from tests.backends.policies import run_group

WHOLE = "whole.bin"
"""What sharded files were cut from; no reader takes it for weights."""
REAL = Path(__file__).parents[4] / ".models" / "smollm2"

TP2 = {"tensor_model_parallel_size": 2}
PP2 = {"pipeline_model_parallel_size": 2}
EP2 = {"expert_model_parallel_size": 2}


@dataclass(frozen=True, kw_only=True)
class Layout:
    processes: int = 1
    sizes: Mapping[str, Any] = field(default_factory=dict)
    models: str = "dense"
    """The checkpoints that it loads, an entry of fixture `models`."""
    role: str = "actor"


LAYOUTS = {
    "one process": Layout(),
    "tp2": Layout(processes=2, sizes={**TP2, "sequence_parallel": False}),
    "tp2 sp": Layout(processes=2, sizes=TP2),
    "pp2": Layout(processes=2, sizes=PP2),
    "pp2 vpp2": Layout(processes=2, sizes={**PP2, "virtual_pipeline_model_parallel_size": 2}),
    "tp2 pp2": Layout(processes=4, sizes={**TP2, **PP2}),
    "experts, one process": Layout(models="experts"),
    "experts, tp2 sp": Layout(processes=2, sizes=TP2, models="experts"),
    "experts, ep2": Layout(processes=2, sizes=EP2, models="experts"),
    "experts, tp2 ep2": Layout(processes=4, sizes={**TP2, **EP2}, models="experts"),
    "experts, pp2 ep2": Layout(processes=4, sizes={**PP2, **EP2}, models="experts"),
    "critic, one process": Layout(models="critics", role="critic"),
    "critic, tp2 pp2": Layout(processes=4, sizes={**TP2, **PP2}, models="critics", role="critic"),
    "sharded files": Layout(models="sharded"),
}
Folders = dict[str, dict[str, str]]


def layouts_of(models: str) -> list[str]:
    return [name for name, layout in LAYOUTS.items() if layout.models == models]


DENSE = {
    "tied llama": {"family": "llama", "tied": True},
    "untied llama": {"family": "llama", "tied": False},
    "qwen2": {"family": "qwen2", "tied": True},
    "qwen3": {"family": "qwen3", "tied": False},
}
EXPERTS = {
    "qwen3_moe": {"family": "qwen3_moe", "tied": False},
    "tied qwen3_moe": {"family": "qwen3_moe", "norm_topk_prob": False},
}


def write_all(folder: Path, checkpoints: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Name -> folder of a tiny checkpoint with the logits of Hugging Face's model beside it."""
    return {
        name: str(with_outputs(write_tiny(folder / name, **how), AutoModelForCausalLM))
        for name, how in checkpoints.items()
    }


def with_outputs(folder: Path, architecture: Any, tokens: int = 24) -> Path:
    """Two micro-batches [2, 2, tokens] and what transformers' model makes of them, in
    outputs.safetensors.bin (which is no weight)."""
    model = architecture.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.randint(
        0, model.config.vocab_size, (2, 2, tokens), generator=torch.Generator().manual_seed(1)
    )
    with torch.no_grad():
        hidden = model.model(ids.flatten(0, 1)).last_hidden_state
        outputs = (model.lm_head if architecture is AutoModelForCausalLM else model.score)(hidden)
    save_file({"ids": ids, "outputs": outputs.reshape(2, 2, tokens, -1)}, folder / "outputs.bin")
    return folder


def loaded(process: ProcessSettings, folder: str, sizes: dict[str, Any], role: str = "ref") -> Any:
    from rmrl.backends.megatron.groups import join
    from rmrl.backends.megatron.load import load_weights
    from rmrl.backends.megatron.model import build_model

    settings = make_settings(Path(folder), role=role, **sizes)
    model = build_model(settings, *join(settings, process))
    for chunk in model.chunks:  # nothing may be right by accident
        for parameter in chunk.parameters():
            parameter.data.fill_(float("nan"))
    load_weights(model, settings)
    return model


@torch.no_grad()
def outputs_of(model: Any, ids: Tensor) -> list[Tensor]:
    """Logits (a critic's values) of each micro-batch, whole, in the processes of the last stage;
    elsewhere nothing."""
    from rmrl.backends.megatron.core import get_forward_backward_func, parallel_state
    from rmrl.backends.megatron.cpu import adapted

    def step(feed: Any, module: Any) -> tuple[Tensor, Callable[..., Tensor]]:
        tokens = next(feed)
        positions = torch.arange(tokens.shape[1]).expand_as(tokens)
        return module(tokens, positions, None), lambda hidden, non_loss_data: hidden.flatten(0, 1)

    group = parallel_state.get_tensor_model_parallel_group()
    schedule = get_forward_backward_func(pp_size=model.sizes.pipeline, vp_size=model.sizes.virtual)
    for module in model.modules:
        module.eval()
    with adapted():
        hidden = schedule(
            forward_step_func=step, data_iterator=[iter(ids) for _ in model.modules], model=model.modules, num_microbatches=len(ids),
            seq_length=ids.shape[2], micro_batch_size=ids.shape[1], forward_only=True, collect_non_loss_data=True,
        )  # fmt: skip
    if not model.last_stage:
        return []
    if model.role == "critic":
        return [model.head.values(one) for one in hidden]
    whole = []
    for one in hidden:
        share = model.linear_head()(one)
        shares = [torch.empty_like(share) for _ in range(dist.get_world_size(group))]
        dist.all_gather(shares, share, group=group)
        whole.append(torch.cat(shares, dim=-1)[:, : model.shape.vocab])
    return whole


def largest(value: float) -> float:
    """Over all processes."""
    number = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(number, op=dist.ReduceOp.MAX)
    return number.item()


def compare(model: Any, folder: str) -> dict[str, Any]:
    """How far the outputs are from Hugging Face's in any process, and which tensors do not come
    back as they were in the file."""
    from rmrl.backends.megatron.gather import manifest, whole_tensors

    expected = load_file(Path(folder) / "outputs.bin")
    runs = (
        model.sizes.expert == 1 or model.sizes.tensor == 1
    )  # gloo cannot gather the unequal shares that the two together make
    ours = outputs_of(model, expected["ids"]) if runs else []
    distance = [
        (one.reshape(theirs.shape) - theirs).abs().max().item()
        for one, theirs in zip(ours, expected["outputs"], strict=False)
    ]
    files = stored_weights(folder)
    different = 0
    for dtype in (None, torch.bfloat16):
        entries = []
        for name, tensor in whole_tensors(model, dtype):
            entries.append((name, tensor.dtype, tuple(tensor.shape)))
            stored = files.get(
                name, torch.zeros(1, model.shape.hidden)
            )  # a language model has no value head: it starts at zero
            different += not torch.equal(tensor, stored.to(dtype or torch.float32))
        different += entries != manifest(model, dtype)
    return {
        "distance": largest(max(distance, default=-1.0)) if runs else None,
        "different": largest(different),
        "names": [name for name, _, _ in entries],
    }


def compare_all(
    process: ProcessSettings, folders: dict[str, str], sizes: dict[str, Any], role: str
) -> dict[str, Any]:
    return {
        name: compare(loaded(process, folder, sizes, role), folder)
        for name, folder in folders.items()
    }


def compare_layouts(process: ProcessSettings, models: Folders) -> dict[str, Any]:
    """Every layout of this number of processes, one after another in the same processes."""
    from rmrl.backends.megatron import groups

    results: dict[str, Any] = {}
    for name, layout in LAYOUTS.items():
        if layout.processes == process.world_size:
            folders = models[layout.models]
            results[name] = compare_all(process, folders, dict(layout.sizes), layout.role)
            groups.leave()
    leave_group()
    return results


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    folder = tmp_path_factory.mktemp("models")
    sharded = with_outputs(write_tiny(folder / "sharded"), AutoModelForCausalLM)
    return {
        "dense": write_all(folder, DENSE),
        "experts": write_all(folder, EXPERTS),
        "critics": write_critics(folder),
        "sharded": {"sharded": str(sharded_files(sharded))},
    }


@pytest.fixture(scope="module")
def results(models: Folders, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Layout -> model -> what `compare` says."""
    results: dict[str, Any] = {}
    for processes in (1, 2, 4):
        folder = tmp_path_factory.mktemp(f"of{processes}")
        results |= run_group(compare_layouts, processes, folder, models)
    return results


def stored_weights(folder: str) -> dict[str, Tensor]:
    """All weights of a checkpoint, also where its files are two."""
    whole = Path(folder) / WHOLE
    return load_file(whole if whole.is_file() else Path(folder) / "model.safetensors")


def stored_names(folder: str) -> set[str]:
    return set(stored_weights(folder))


@pytest.mark.parametrize("layout", layouts_of("dense"))
def test_dense_models_are_hugging_faces(
    models: Folders, results: dict[str, Any], layout: str
) -> None:
    assert results[layout].keys() == DENSE.keys()
    for name, result in results[layout].items():
        assert 0 <= result["distance"] <= 1e-5, (name, result["distance"])  # of logits up to 4
        assert result["different"] == 0, name
        assert set(result["names"]) == stored_names(models["dense"][name])


@pytest.mark.parametrize("layout", layouts_of("experts"))
def test_models_with_experts_are_hugging_faces(
    models: Folders, results: dict[str, Any], layout: str
) -> None:
    assert results[layout].keys() == EXPERTS.keys()
    for name, result in results[layout].items():
        assert result["distance"] is None or 0 <= result["distance"] <= 1e-5, (
            name,
            result["distance"],
        )
        assert result["different"] == 0, name
        # One tensor per expert and projection, as files and engines have them; transformers fuses
        # them in memory alone.
        assert "model.layers.3.mlp.experts.3.down_proj.weight" in result["names"]
        assert set(result["names"]) == stored_names(models["experts"][name])


def write_critics(folder: Path) -> dict[str, str]:
    """Name -> checkpoint that a critic starts from; of a language model its values are zero."""
    scorer = write_tiny(folder / "rm", classifier=True)
    language = with_outputs(write_tiny(folder / "lm", "qwen2"), AutoModelForCausalLM)
    ids = load_file(language / "outputs.bin")["ids"]
    save_file({"ids": ids, "outputs": torch.zeros(2, 2, 24, 1)}, language / "outputs.bin")
    return {
        "reward model": str(with_outputs(scorer, AutoModelForSequenceClassification)),
        "language model": str(language),
    }


@pytest.mark.parametrize("layout", layouts_of("critics"))
def test_a_critic_starts_from_either_kind_of_checkpoint(
    models: Folders, results: dict[str, Any], layout: str
) -> None:
    assert results[layout].keys() == models["critics"].keys()
    for name, result in results[layout].items():
        assert 0 <= result["distance"] <= 1e-5, name
        assert result["different"] == 0, name
        assert result["names"][-1] == "score.weight"
        assert set(result["names"]) == stored_names(models["critics"][name]) | {"score.weight"}


@pytest.mark.nightly
@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real model in .models/smollm2")
def test_a_real_model_is_hugging_faces_under_tp3_pp2(tmp_path: Path) -> None:
    for file in REAL.iterdir():
        (tmp_path / file.name).symlink_to(file)
    with_outputs(tmp_path, AutoModelForCausalLM, tokens=48)
    sizes, folders = {"tensor_model_parallel_size": 3, **PP2}, {"real": str(tmp_path)}
    result = run_group(compare_all, 6, tmp_path, folders, sizes, "ref")["real"]
    # Of logits up to 34; Hugging Face's own float32 logits of these tokens are 2e-3 from those of
    # float64.
    assert 0 <= result["distance"] <= 5e-3
    assert result["different"] == 0
    assert len(result["names"]) == 272


def sharded_files(folder: Path) -> Path:
    """The same checkpoint in two files with an index."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").rename(folder / WHOLE)
    return folder


def test_sharded_files_are_read_through_their_index(
    models: Folders, results: dict[str, Any]
) -> None:
    result = results["sharded files"]["sharded"]
    assert 0 <= result["distance"] <= 1e-5
    assert result["different"] == 0
    assert set(result["names"]) == stored_names(models["sharded"]["sharded"])

"""Reward models as OpenRLHF, LLaMA-Factory, TRL and ms-swift save them become classifiers with the
same scores."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForSequenceClassification, LlamaModel

from rmrl.backends.export import CHECKED_TOKENS
from rmrl.errors import ConfigError
from rmrl.main_export import main
from rmrl.models.peer_heads import peer_head
from rmrl.offline.rewards import Rewards
from tests.engine_models import llama_config, write_llama, write_tokenizer

IDS = torch.tensor([[5, 9, 31, 7]])


def weights(prefix: str, head: str, *, bias: bool) -> dict[str, Tensor]:
    """A decoder under `prefix` and a head, all drawn."""
    torch.manual_seed(3)
    model = LlamaModel(llama_config())
    tensors = {f"{prefix}{name}": each.detach() for name, each in model.named_parameters()}
    tensors[f"{head}.weight"] = torch.randn(1, model.config.hidden_size)
    if bias:
        tensors[f"{head}.bias"] = torch.tensor([0.5])
    return tensors


def write(folder: Path, tensors: dict[str, Tensor], architecture: str, **entries: Any) -> None:
    folder.mkdir(exist_ok=True)
    config = llama_config().to_dict() | {"architectures": [architecture]} | entries
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(folder)


def openrlhf(folder: Path) -> str:
    tensors = weights("model.", "score", bias=False)
    write(folder, tensors, "RewardModel", normalize_reward=True, mean=2.0, std=4.0)
    return "score"


def older_openrlhf(folder: Path) -> str:
    tensors = weights("model.", "value_head", bias=False)
    write(folder, tensors, "RewardModel", value_head_prefix="value_head")
    return "value_head"


def trl(folder: Path) -> str:
    tensors = weights("model.", "v_head.summary", bias=True)
    tensors["lm_head.weight"] = torch.randn(llama_config().vocab_size, llama_config().hidden_size)
    write(folder, tensors, "LlamaForCausalLM")
    return "v_head.summary"


def llama_factory(folder: Path) -> str:
    head = trl(folder)
    tensors = load_file(folder / "model.safetensors")
    beside = {name: tensors.pop(name) for name in list(tensors) if name.startswith("v_head")}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    save_file(beside, folder / "value_head.safetensors", metadata={"format": "pt"})
    return head


def older_ms_swift(folder: Path) -> str:
    write(folder, weights("model.", "score", bias=False), "LlamaForCausalLM", num_labels=1)
    return "score"


PEERS: list[Callable[[Path], str]] = [openrlhf, older_openrlhf, trl, llama_factory, older_ms_swift]


@pytest.mark.parametrize("save", PEERS, ids=lambda save: save.__name__)
def test_the_classifier_gives_the_score_of_its_trainer(
    save: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "peer"
    head = save(folder)
    out = tmp_path / "classifier"
    assert main([f"reward_model={folder}", f"out={out}", "dtype=float32"]) == 0
    printed = capsys.readouterr().out
    assert "reloaded, logits differ by at most" in printed

    tensors: dict[str, Tensor] = {}
    for file in folder.glob("*.safetensors"):
        tensors |= load_file(file)
    decoder = LlamaModel(llama_config()).eval()
    decoder.load_state_dict(
        {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
    )
    hidden = decoder(IDS).last_hidden_state[0, -1]
    plain = (hidden @ tensors[f"{head}.weight"][0]).item()
    got, info = AutoModelForSequenceClassification.from_pretrained(out, output_loading_info=True)
    assert not info["missing_keys"]
    assert got.config.num_labels == 1
    assert got.config.pad_token_id is not None
    assert got.eval()(IDS).logits.item() == pytest.approx(plain, rel=1e-5)
    assert peer_head(out) is None

    if save is openrlhf:  # (s - 2) / 4
        assert "transform={kind: scale, factor: 0.25, offset: -0.5} does too" in printed
    elif f"{head}.bias" in tensors:
        assert "transform={kind: scale, factor: 1, offset: 0.5} does too" in printed
    else:
        assert "transform" not in printed


def test_a_reward_that_names_the_folder_is_told_what_to_type(tmp_path: Path) -> None:
    openrlhf(tmp_path / "peer")
    with pytest.raises(ConfigError, match=rf"rmrl export reward_model={tmp_path / 'peer'} out="):
        Rewards({"reward": {"models": [str(tmp_path / "peer")]}})


def test_other_checkpoints_are_left_alone(tmp_path: Path, tiny_reward_llama: Path) -> None:
    assert peer_head(write_llama(tmp_path / "judge")) is None
    assert peer_head(tiny_reward_llama) is None


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["reward_model={rm}", "out=x", "role=critic"], "role has no effect beside reward_model"),
        (["reward_model={judge}", "out=x"], "no linear head of one output"),
        (["reward_model={torn}", "out=x"], "lacks 'model.norm.weight'"),
        (["reward_model={odd}", "out=x"], r"holds 'model.more' \[2\], which is no parameter"),
        (["out=x"], "give checkpoint=<folder>, or reward_model=<folder>"),
    ],
)
def test_what_cannot_be_written(
    words: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_llama(tmp_path / "judge")
    for name in ("rm", "torn", "odd"):
        older_ms_swift(tmp_path / name)
    tensors = load_file("torn/model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, "torn/model.safetensors", metadata={"format": "pt"})
    save_file(
        load_file("odd/model.safetensors") | {"model.more": torch.ones(2)},
        "odd/model.safetensors",
        metadata={"format": "pt"},
    )
    folders = {name: name for name in ("rm", "judge", "torn", "odd")}
    assert main([word.format(**folders) for word in words]) != 0
    printed = " ".join(capsys.readouterr().err.split())
    assert re.search(problem, printed), printed
    assert not (tmp_path / "x").exists()


def test_a_score_near_0_is_no_fault_of_the_written_classifier(tmp_path: Path) -> None:
    """Its rounding is large beside the score, and not beside the terms that add up to it."""
    tensors = weights("model.", "score", bias=False)
    decoder = LlamaModel(llama_config()).eval()
    decoder.load_state_dict(
        {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
    )
    ids = torch.linspace(0, decoder.config.vocab_size - 1, CHECKED_TOKENS).long()[None]
    with torch.no_grad():
        hidden = decoder(ids).last_hidden_state[0, -1]
    head = tensors["score.weight"]
    tensors["score.weight"] = head - (head @ hidden)[:, None] * hidden / hidden.dot(hidden)
    score = (tensors["score.weight"] @ hidden).abs().item()
    assert score < 1e-5 * (tensors["score.weight"].abs() @ hidden.abs()).item()
    write(tmp_path / "peer", tensors, "RewardModel")
    command = [f"reward_model={tmp_path / 'peer'}", f"out={tmp_path / 'out'}", "dtype=float32"]
    assert main(command) == 0

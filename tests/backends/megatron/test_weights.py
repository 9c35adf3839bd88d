"""Hugging Face weights into a Megatron model and out of it: the same logits, and every tensor back
bit by bit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rmrl.errors import CheckpointError, ConfigError
from rmrl.models.loading import load_config
from tests.backends.megatron.tiny import make_settings, write_tiny


def load_into_nothing(folder: Path, *, role: str = "actor", tied: bool = True) -> None:
    """All that happens before the first tensor is read; needs no process group."""
    from rmrl.backends.megatron.load import load_weights
    from rmrl.backends.megatron.shape import Shape
    from rmrl.backends.megatron.sizes import Sizes

    sizes = Sizes(
        tensor=1, pipeline=1, virtual=None, context=1, expert=1, sequence_parallel=False, data=1
    )
    config = load_config(make_settings(folder).model)
    config.tie_word_embeddings = tied
    model: Any = SimpleNamespace(shape=Shape.of(config, sizes, section="x"), role=role, chunks=[])
    load_weights(model, make_settings(folder, role=role))


def without(folder: Path, *names: str) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {name: tensor for name, tensor in tensors.items() if name not in names},
        folder / "model.safetensors",
    )


def test_missing_weights_are_named(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    without(folder, "model.layers.2.self_attn.k_proj.weight", "model.norm.weight")
    with pytest.raises(
        CheckpointError,
        match=r"lacks 2 weights .*layers\.2\.self_attn\.k_proj\.weight, model\.norm\.weight",
    ) as caught:
        load_into_nothing(folder)
    assert "actor_rollout_ref.model.path" in str(caught.value)


def test_a_head_of_its_own_must_be_there(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, tied=True)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
        load_into_nothing(folder, tied=False)


def test_a_classifier_without_its_head_is_refused_as_a_critic(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, classifier=True)
    without(folder, "score.weight")
    with pytest.raises(CheckpointError, match=r"score\.weight.*critic\.model\.path"):
        load_into_nothing(folder, role="critic")


def test_tensors_of_another_shape_are_named(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "model.norm.weight": torch.ones(63)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight \[63\] and not \[64\]"):
        load_into_nothing(folder)


def test_other_formats_than_safetensors_are_refused(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"holds pytorch_model\.bin, and .*save_pretrained"):
        load_into_nothing(folder)


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    save_file(
        {**tensors, name: tensors[name].to(torch.float8_e4m3fn)}, folder / "model.safetensors"
    )
    with pytest.raises(
        ConfigError,
        match=r"1 weights are quantised \(model\.layers\.0\.mlp\.up_proj\.weight F8_E4M3\)",
    ):
        load_into_nothing(folder)

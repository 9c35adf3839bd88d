"""Names and values are those that transformers itself writes into files."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from rmrl.models.stored_tensors import StoredTensors, stored_buffers

SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "pad_token_id": 0,
}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mixtral": {"num_local_experts": 2},
    "qwen3_moe": {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16},
    "ernie4_5_moe": {"moe_num_experts": 2, "moe_k": 1, "moe_layer_start_index": 0},
    "glm4_moe": {"n_routed_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16},
}


def model_of(family: str) -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **SHAPE, **FAMILIES[family])
    model = AutoModelForCausalLM.from_config(config)
    for _, buffer in stored_buffers(model):
        buffer.normal_()
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_are_those_of_the_file_and_find_back(family: str, tmp_path: Path) -> None:
    model = model_of(family)
    model.save_pretrained(tmp_path)
    expected = load_file(tmp_path / "model.safetensors")
    named = [*model.named_parameters(), *stored_buffers(model)]
    tensors = dict(StoredTensors(model).all(named))
    assert tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensors[name], tensor), name

    # Names and shapes need no values.
    empty = ((name, tensor.to("meta")) for name, tensor in named)
    for name, tensor in StoredTensors(model).all(empty):
        assert tensor.shape == expected[name].shape

    other = model_of(family)
    for tensor in chain(other.parameters(), (buffer for _, buffer in stored_buffers(other))):
        tensor.data.zero_()
    StoredTensors(other).copy(expected.items())
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_a_tensor_that_the_model_lacks_is_named() -> None:
    with pytest.raises(KeyError, match=r"layers\.9"):
        StoredTensors(model_of("mixtral")).copy([("model.layers.9.x", torch.ones(1))])


def test_one_family_has_a_buffer_in_its_files() -> None:
    (name,) = dict(stored_buffers(model_of("glm4_moe")))
    assert name == "model.layers.1.mlp.gate.e_score_correction_bias"
    assert not dict(stored_buffers(model_of("llama")))

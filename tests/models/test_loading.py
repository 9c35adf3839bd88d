"""Loading: what a user sees when the checkpoint is not what they thought."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GraniteConfig, LlamaConfig, LlamaForCausalLM

from rmrl.config.schema import ModelConfig
from rmrl.errors import CheckpointError, ConfigError
from rmrl.models.loading import load_causal_lm, load_config, torch_dtype
from rmrl.models.token_values import load_value_model


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    shape = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
    }
    LlamaForCausalLM(
        LlamaConfig(vocab_size=200, num_hidden_layers=2, attention_dropout=0.1, **shape)
    ).save_pretrained(tmp_path)
    return tmp_path


def test_loads_in_the_dtype_asked_for_without_dropout(checkpoint: Path):
    model = load_causal_lm(ModelConfig(path=str(checkpoint)), dtype=torch.bfloat16)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model.model.layers[0].self_attn.attention_dropout == 0.0
    assert model.config.attention_dropout == 0.1  # the export says what the checkpoint said
    assert model.is_gradient_checkpointing


def test_every_second_layer_recomputes_with_the_same_gradients(checkpoint: Path):
    gradients: list[torch.Tensor] = []
    for every, recomputed in ((None, [True, True]), (2, [True, False])):
        settings = ModelConfig(path=str(checkpoint), gradient_checkpointing_every=every)
        model = load_causal_lm(settings, dtype=torch.float32)
        assert [layer.gradient_checkpointing for layer in model.model.layers] == recomputed
        model.train()
        model(torch.arange(6)[None]).logits.square().sum().backward()
        gradients.append(model.model.layers[0].mlp.up_proj.weight.grad)
    assert torch.equal(*gradients)
    off = ModelConfig(
        path=str(checkpoint), enable_gradient_checkpointing=False, gradient_checkpointing_every=2
    )
    assert not load_causal_lm(off, dtype=torch.float32).is_gradient_checkpointing


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("{tmp}/nowhere", r"no such folder; set actor_rollout_ref\.model\.path="),
        ("{tmp}/empty", r"config\.json"),
        ("{tmp}", "no causal language model"),
        ("", r"model\.path is empty"),
    ],
)
def test_what_holds_no_model_is_named(checkpoint: Path, path: str, named: str):
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "empty").mkdir()
    config = ModelConfig(path=path.replace("{tmp}", str(checkpoint)))
    with pytest.raises(ConfigError, match=named):
        load_causal_lm(config, dtype=torch.float32)


def test_a_family_without_a_classifier_is_named(tmp_path: Path):
    GraniteConfig(num_hidden_layers=1).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"no classifier .of a family.*GraniteConfig"):
        load_value_model(ModelConfig(path=str(tmp_path)), dtype=torch.float32)


def test_missing_weights_are_an_error_not_random_numbers(checkpoint: Path):
    tensors = load_file(checkpoint / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks 1 weights .*model\.norm\.weight"):
        load_causal_lm(ModelConfig(path=str(checkpoint)), dtype=torch.float32)


def test_override_config_reaches_nested_entries_and_refuses_unknown_ones(checkpoint: Path):
    entries = {"max_position_embeddings": 77, "rope_parameters": {"rope_theta": 5.0}}
    config = load_config(ModelConfig(path=str(checkpoint), override_config=entries))
    assert config.max_position_embeddings == 77
    assert config.rope_parameters["rope_theta"] == 5.0
    with pytest.raises(ConfigError, match=r"override_config\.max_position: .*did you mean"):
        load_config(ModelConfig(path=str(checkpoint), override_config={"max_position": 1}))


def test_dtype_names():
    assert torch_dtype("bf16", key="x") is torch.bfloat16
    with pytest.raises(ConfigError, match=r"rollout\.dtype=bfloat61: .*'bfloat16'"):
        torch_dtype("bfloat61", key="rollout.dtype")


def test_a_padding_token_inside_a_row_trains(checkpoint: Path):
    """It is the end token of many checkpoints. Hugging Face's embedding would give it no
    gradient."""
    model = load_causal_lm(
        ModelConfig(path=str(checkpoint), override_config={"pad_token_id": 7}), dtype=torch.float32
    )
    hidden = model.model(input_ids=torch.tensor([[3, 7, 5]]), use_cache=False).last_hidden_state
    hidden[0, 2, 0].backward()
    assert model.model.embed_tokens.weight.grad[7].abs().max() > 0

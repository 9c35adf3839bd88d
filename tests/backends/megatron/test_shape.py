"""Hugging Face configs -> shapes: the four families, rotary frequencies as transformers has them,
and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, MistralConfig

from rmrl.backends.megatron.shape import Experts, Shape
from rmrl.backends.megatron.sizes import Sizes
from rmrl.config.schema import MegatronConfig
from rmrl.errors import ConfigError
from tests.backends.megatron.tiny import tiny_config

SECTION = "actor_rollout_ref.actor"
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def shape_of(config: Any, **megatron: Any) -> Shape:
    settings = MegatronConfig(**megatron)
    size = (
        settings.tensor_model_parallel_size
        * settings.pipeline_model_parallel_size
        * settings.expert_model_parallel_size
    )
    return Shape.of(config, Sizes.of(settings, size, section=SECTION), section=SECTION)


def test_numbers_of_a_llama() -> None:
    shape = shape_of(tiny_config(), tensor_model_parallel_size=2)
    assert (shape.layers, shape.hidden, shape.ffn, shape.heads, shape.kv_heads, shape.head_dim) == (
        4,
        64,
        96,
        4,
        2,
        16,
    )
    assert (shape.vocab, shape.padded_vocab, shape.tied, shape.eps) == (131, 132, True, 1e-6)
    assert (shape.qkv_bias, shape.qk_norm, shape.experts) == (False, False, None)


def test_the_vocabulary_is_padded_to_the_tensor_parallel_size_alone() -> None:
    wide = {"num_attention_heads": 8, "num_key_value_heads": 8}
    assert [
        shape_of(tiny_config(**wide), tensor_model_parallel_size=size).padded_vocab
        for size in (1, 4, 8)
    ] == [131, 132, 136]


def test_families() -> None:
    assert shape_of(tiny_config("qwen2")).qkv_bias
    assert shape_of(tiny_config("qwen3", tied=False)).qk_norm
    assert not shape_of(tiny_config("qwen3", tied=False)).tied
    experts = shape_of(tiny_config("qwen3_moe"), expert_model_parallel_size=2).experts
    assert experts == Experts(count=4, chosen=2, ffn=48, normalised=True)


def test_without_head_dim_and_key_value_heads() -> None:
    shape = shape_of(tiny_config(head_dim=None, num_key_value_heads=None))
    assert (shape.head_dim, shape.kv_heads) == (64 // 4, 4)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default", "rope_theta": 1e6},
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
        LLAMA3,
    ],
)
def test_rotary_frequencies_are_those_of_transformers(rope: dict[str, Any]) -> None:
    config = tiny_config(rope_parameters=rope, num_hidden_layers=1)
    theirs = AutoModelForCausalLM.from_config(config).model.rotary_emb.inv_freq
    assert torch.equal(torch.tensor(shape_of(config).rope), theirs)


def test_rotary_frequencies_by_hand() -> None:
    # Channels 0, 2, ..., 14 of 16: 10000 ** -(0/16), ... The slowest turns by 10000 ** -(14/16) =
    # 10 ** -3.5 per position.
    rope = shape_of(tiny_config()).rope
    assert len(rope) == 8
    assert rope[0] == 1.0
    assert rope[7] == pytest.approx(10**-3.5)
    # llama3: wavelengths below 64 / 4 positions stay, above 64 / 1 they are 8 times as long.
    scaled = shape_of(tiny_config(rope_parameters=LLAMA3)).rope
    plain = shape_of(
        tiny_config(rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    ).rope
    assert scaled[0] == plain[0]  # wavelength 2 pi
    assert scaled[7] == pytest.approx(plain[7] / 8)


@pytest.mark.parametrize(
    ("family", "entries", "named"),
    [
        ("llama", {"hidden_act": "gelu"}, "the activation gelu"),
        ("llama", {"mlp_bias": True}, "mlp_bias=true"),
        ("llama", {"attention_bias": True}, "attention_bias=true"),
        ("qwen3", {"attention_bias": True}, "attention_bias=true"),
        (
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 2},
            "sliding_window=32",
        ),
        (
            "llama",
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}},
            "rope_type=yarn",
        ),
        ("qwen3_moe", {"mlp_only_layers": [0]}, r"mlp_only_layers=\[0\]"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step=2"),
    ],
)
def test_what_would_compute_other_numbers_is_refused(
    family: str, entries: dict[str, Any], named: str
) -> None:
    with pytest.raises(
        ConfigError,
        match=f"{SECTION}.strategy=megatron: the model has .*{named}.*use strategy=fsdp2",
    ):
        shape_of(tiny_config(family, **entries))


def test_all_reasons_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        shape_of(tiny_config(hidden_act="gelu", mlp_bias=True))
    assert len(caught.value.problems) == 2


def test_another_family_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'mistral'.*use strategy=fsdp2"):
        shape_of(MistralConfig())


def test_sizes_that_do_not_divide_the_model_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_key_value_heads=2"):
        shape_of(tiny_config(), tensor_model_parallel_size=4)
    with pytest.raises(ConfigError, match="num_experts=4"):
        shape_of(tiny_config("qwen3_moe"), expert_model_parallel_size=3)

"""Which settings and families let responses share their prompt."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, MistralConfig, MistralForCausalLM

from rmrl.config.schema import ModelConfig
from rmrl.models import shared_prompts
from rmrl.models.shared_prompts import keeps_responses_apart, shares
from tests.engine_models import llama_config


@pytest.mark.parametrize(
    ("settings", "device", "expected"),
    [
        ({}, "cpu", True),
        ({}, "cuda", False),
        ({"share_prompts": True}, "cuda", True),
        ({"share_prompts": False}, "cpu", False),
        ({"attn_implementation": "flex_attention"}, "cpu", False),
        ({"use_remove_padding": True}, "cpu", False),
    ],
)
def test_shares(settings: dict[str, Any], device: str, expected: bool):
    assert shares(ModelConfig(**settings), device=device) is expected


def test_a_llama_keeps_responses_apart():
    torch.manual_seed(0)
    assert keeps_responses_apart(LlamaForCausalLM(llama_config()))


def test_a_window_does_not():
    config = MistralConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, sliding_window=8,
    )  # fmt: skip
    assert not keeps_responses_apart(MistralForCausalLM(config))


def test_a_window_in_one_layer_does_not():
    """transformers raises an error where it is read from the config of the whole model."""
    config = MistralConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, sliding_window=None,
        per_layer_config={1: {"sliding_window": 8}},
    )  # fmt: skip
    model = LlamaForCausalLM(llama_config())
    model.config = config
    assert not keeps_responses_apart(model)


def test_a_mask_that_has_no_effect_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """As in a family that ignores the mask: the second response then sees the first."""

    def causal(segments_BS: torch.Tensor) -> torch.Tensor:
        size = segments_BS.shape[1]
        return torch.ones(1, 1, size, size, dtype=torch.bool).tril()

    monkeypatch.setattr(shared_prompts, "attention_mask", causal)
    torch.manual_seed(0)
    assert not keeps_responses_apart(LlamaForCausalLM(llama_config()))

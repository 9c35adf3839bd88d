"""Which heads the processes of a sequence get, and which models they refuse to share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from rmrl.errors import ConfigError
from rmrl.models.packing import check_only_attention_mixes, set_attention
from rmrl.models.sequence_parallel import Slices, config_problem, copies_of_heads
from rmrl.models.varlen import NAME
from tests.engine_models import llama_config


@pytest.mark.parametrize(
    ("heads", "queries", "size", "copies"),
    [(8, 8, 4, 1), (4, 8, 4, 1), (2, 8, 4, 2), (1, 8, 4, 4), (3, 12, 2, 2), (3, 12, 4, 4), (6, 12, 4, 2)],
)  # fmt: skip
def test_keys_are_repeated_as_often_as_they_must(heads: int, queries: int, size: int, copies: int):
    assert copies_of_heads(heads, queries=queries, size=size) == copies


def test_parts_lie_one_behind_the_other():
    group: Any = None
    places = [Slices(group, 3, rank).own(12) for rank in range(3)]
    assert [(place.start, place.stop) for place in places] == [(0, 4), (4, 8), (8, 12)]


@pytest.mark.parametrize(
    ("rope", "heads", "problem"),
    [
        ({}, 4, ""),
        ({}, 6, "does not divide the 6 attention heads of this model: give a divisor of 6"),
        ({"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}, 4, "(rope_type dynamic)"),
    ],
)
def test_a_model_that_cannot_be_shared_is_told_why(rope: dict[str, Any], heads: int, problem: str):
    config = LlamaConfig(
        hidden_size=48, num_attention_heads=heads, **({"rope_parameters": rope} if rope else {})
    )
    got = config_problem(config, 4)
    assert problem in got
    assert bool(problem) == bool(got)


def with_varlen() -> LlamaForCausalLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM(llama_config())
    set_attention(model, NAME)
    return model


class LooksBack(nn.Module):
    """A layer that adds the token before, as convolutions and recurrent layers do."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden_BSH: torch.Tensor) -> torch.Tensor:
        return self.inner(hidden_BSH) + hidden_BSH.roll(1, dims=1)


def test_layers_that_look_along_the_row_are_refused():
    model: Any = with_varlen()
    check_only_attention_mixes(model)
    model.model.layers[0].mlp = LooksBack(model.model.layers[0].mlp)
    with pytest.raises(ConfigError, match="'llama' look along a row outside of attention"):
        check_only_attention_mixes(model)

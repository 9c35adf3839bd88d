"""What the compatibility layer decides before any process group exists."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rmrl.backends import process_group
from rmrl.backends.base import ProcessSettings
from rmrl.backends.fsdp import compat
from rmrl.backends.fsdp.layout import decoder_layers
from rmrl.errors import ConfigError


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(2, 2) for _ in range(8))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(2)])
        self.layers = nn.ModuleList(Layer() for _ in range(3))


def test_layers_are_the_units_not_their_experts():
    model = Model()
    assert decoder_layers(model) == list(model.layers)
    assert decoder_layers(nn.Linear(2, 2)) == []


def test_a_group_of_two_needs_a_meeting_point():
    with pytest.raises(ValueError, match=r"needs ProcessSettings\.init_method"):
        process_group.join_group(ProcessSettings(world_size=2), "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_says_what_to_type():
    with pytest.raises(ConfigError, match=r"set trainer\.device=cpu"):
        process_group.join_group(ProcessSettings(), "cuda")


def test_full_tensor_of_a_plain_tensor_is_itself_in_the_dtype():
    parameter = nn.Parameter(torch.ones(2))
    assert compat.full_tensor(parameter, torch.bfloat16).dtype is torch.bfloat16
    assert compat.full_tensor(torch.ones(2, dtype=torch.int64), torch.bfloat16).dtype is torch.int64


def test_clipping_by_hand():
    model = nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    assert compat.clip_gradients(model, 0.0) == 5.0
    assert model.weight.grad.tolist() == [[3.0, 4.0]]
    assert compat.clip_gradients(model, 1.0) == 5.0
    assert model.weight.grad.tolist()[0] == pytest.approx([0.6, 0.8], rel=1e-5)
    model.weight.grad = torch.tensor([[float("nan"), 1.0]])
    assert compat.clip_gradients(model, 1.0) != compat.clip_gradients(model, 1.0)  # nan


def test_what_trains_is_named_and_of_a_frozen_model_everything():
    model = Model()
    model.layers.requires_grad_(False)
    assert compat.trained_names(model) == {"norms.0.weight", "norms.0.bias"}
    assert len(compat.trained_names(model.requires_grad_(False))) == 2 + 3 * 8 * 2

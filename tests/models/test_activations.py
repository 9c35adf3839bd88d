"""Activations in host memory, and compiled layers: the same gradients."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rmrl.backends.fsdp.layout import decoder_layers
from rmrl.models import packing
from rmrl.models.activations import offloaded
from rmrl.models.compiled import compile_layers, compiler_problem
from rmrl.models.logprobs import ResponseModel
from tests.packages import hide

LAYERS = 3


def responses(*, offload: bool = False) -> ResponseModel:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=200,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=LAYERS,
            num_attention_heads=2,
            num_key_value_heads=1,
        )
    )
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return ResponseModel(model, temperature=0.8, offload_activations=offload).train()


def gradients(model: ResponseModel, length: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(length)
    row = torch.randint(0, 200, (1, length), generator=generator)
    positions = torch.arange(length - 1)
    logprobs, _ = model(row, positions, row[0, 1:])
    model.zero_grad()
    (logprobs * positions).sum().backward()
    found: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        found[name] = parameter.grad.clone()
    return found


def test_offloaded_activations_give_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU stands for the device: one copy per layer's input, and no parameter among them."""
    copies: list[torch.Size] = []
    real = torch.empty

    def counted(*arguments: object, **options: object) -> torch.Tensor:
        if "pin_memory" in options:
            assert isinstance(arguments[0], torch.Size)
            copies.append(arguments[0])
        return real(*arguments, **options)

    def on_cpu() -> object:
        return offloaded(device_type="cpu", smallest_bytes=20 * 64 * 4)

    monkeypatch.setattr(packing, "offloaded", on_cpu)
    monkeypatch.setattr(torch, "empty", counted)
    moved = gradients(responses(offload=True), 20)
    inputs_of_layers = [shape for shape in copies if tuple(shape) == (1, 20, 64)]
    assert len(inputs_of_layers) >= LAYERS
    assert len(copies) <= LAYERS + 3  # what the last norm keeps, too
    count = len(copies)
    stayed = gradients(responses(), 20)
    assert len(copies) == count
    for name, gradient in stayed.items():
        assert torch.equal(moved[name], gradient), name


def test_compiled_layers_give_the_same_gradients_and_are_compiled_once_for_all_lengths() -> None:
    plain, compiled = responses(), responses()
    names = [name for name, _ in compiled.named_parameters()]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compile_layers(decoder_layers(compiled), backend="aot_eager")
    assert [name for name, _ in compiled.named_parameters()] == names
    for length in (9, 12, 17, 33):
        expected = gradients(plain, length)
        for name, gradient in gradients(compiled, length).items():
            torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-4, msg=name)
    assert 0 < torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3
    torch._dynamo.reset()


def test_a_compiler_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmrl.models.compiled.shutil.which", lambda name: None)
    hide(monkeypatch, "triton")
    assert "apt-get install g++" in compiler_problem("cpu")
    assert "pip install triton" in compiler_problem("cuda")

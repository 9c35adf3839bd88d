"""Packed rows compute what padded rows compute, and a family that mixes them is refused."""

from __future__ import annotations

import importlib.util
import shutil

import pytest
import torch
from transformers import LlamaForCausalLM

from rmrl.config.schema import ModelConfig
from rmrl.errors import ConfigError
from rmrl.models.logprobs import ResponseModel
from rmrl.models.packing import attention, check_rows_kept_apart, packs, set_attention
from tests.engine_models import llama_config

ROWS = (9, 5, 2)


def tiny_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(llama_config())


def padded_and_packed() -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...], torch.Tensor]:
    """(ids, positions, position ids) both ways for all tokens but the first of each row; and these
    tokens."""
    torch.manual_seed(1)
    rows = [torch.randint(3, 1000, (n,)) for n in ROWS]
    padded = torch.zeros(len(rows), max(ROWS), dtype=torch.long)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    before = torch.cat([number * max(ROWS) + torch.arange(n - 1) for number, n in enumerate(ROWS)])
    starts = torch.tensor([0, *ROWS]).cumsum(0)
    packed_before = torch.cat(
        [start + torch.arange(n - 1) for start, n in zip(starts, ROWS, strict=False)]
    )
    restarting = torch.cat([torch.arange(n) for n in ROWS])[None]
    return (
        (padded, before),
        (torch.cat(rows)[None], packed_before, restarting),
        torch.cat([row[1:] for row in rows]),
    )


def test_packed_rows_equal_padded_rows_and_so_do_their_gradients():
    (ids, before), (packed_ids, packed_before, restarting), targets = padded_and_packed()
    results = []
    for arguments in (
        (ids, before, targets, "grad"),
        (packed_ids, packed_before, targets, "grad", restarting),
    ):
        model = ResponseModel(tiny_model(), temperature=0.8)
        logprobs, entropy = model(*arguments)
        (logprobs * torch.arange(len(targets)) + 0.1 * entropy).sum().backward()
        results.append((logprobs.detach(), {name: p.grad for name, p in model.named_parameters()}))
    (logprobs, gradients), (packed_logprobs, packed_gradients) = results
    torch.testing.assert_close(packed_logprobs, logprobs, atol=1e-5, rtol=0)
    for name, gradient in gradients.items():
        largest = gradient.abs().max().item()
        torch.testing.assert_close(
            packed_gradients[name], gradient, atol=1e-5 * largest, rtol=0, msg=name
        )


@pytest.mark.slow  # compiles a kernel
@pytest.mark.skipif(
    shutil.which("g++") is None, reason="flex attention on CPU needs a C++ compiler"
)
def test_flex_attention_keeps_packed_rows_apart():
    (ids, before), (packed_ids, packed_before, restarting), targets = padded_and_packed()
    model = tiny_model().eval()
    responses = ResponseModel(model, temperature=0.8)
    with torch.no_grad():
        expected, _ = responses(ids, before, targets)
        set_attention(model, "flex_attention")
        got, _ = responses(packed_ids, packed_before, targets, "none", restarting)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_packing_is_for_cuda_or_an_attention_named():
    wanted = ModelConfig(use_remove_padding=True)
    assert packs(wanted, device="cuda")
    assert not packs(wanted, device="cpu")
    assert packs(ModelConfig(use_remove_padding=True, attn_implementation="sdpa"), device="cpu")
    assert not packs(ModelConfig(attn_implementation="sdpa"), device="cuda")


@pytest.mark.parametrize("installed", [True, False])
def test_auto_takes_the_fastest_attention_there_is(
    installed: bool, monkeypatch: pytest.MonkeyPatch
):
    spec = importlib.util.find_spec("torch") if installed else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    wanted = ModelConfig(use_remove_padding=True)
    assert attention(wanted, device="cpu", dtype=torch.bfloat16) == "sdpa"
    assert attention(ModelConfig(), device="cuda", dtype=torch.bfloat16) == "sdpa"
    assert attention(wanted, device="cuda", dtype=torch.bfloat16) == (
        "flash_attention_2" if installed else "flex_attention"
    )
    assert attention(wanted, device="cuda", dtype=torch.float32) == "flex_attention"


def test_an_attention_that_cannot_run_says_what_to_type(monkeypatch: pytest.MonkeyPatch):
    flash = ModelConfig(attn_implementation="flash_attention_2")
    with pytest.raises(ConfigError, match=r"needs CUDA: set trainer\.device=cuda"):
        attention(flash, device="cpu", dtype=torch.bfloat16)
    with pytest.raises(
        ConfigError, match=r"compute is in torch\.float32: set fsdp_config\.param_dtype=bfloat16"
    ):
        attention(flash, device="cuda", dtype=torch.float32)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install flash-attn"):
        attention(flash, device="cuda", dtype=torch.bfloat16)
    with pytest.raises(ConfigError, match="did you mean 'flex_attention'"):
        attention(
            ModelConfig(attn_implementation="flex_atention"), device="cpu", dtype=torch.float32
        )


def test_attention_is_set_in_place():
    model = tiny_model()
    set_attention(model, "eager")
    assert model.model.layers[0].self_attn.config._attn_implementation == "eager"


def test_a_family_that_keeps_rows_apart_passes():
    check_rows_kept_apart(tiny_model())
    check_rows_kept_apart(tiny_model().bfloat16())


def test_a_family_that_mixes_rows_is_refused():
    """A convolution or a recurrence looks back whatever the positions say."""

    class LooksBack(torch.nn.Module):
        def forward(self, hidden_BSH: torch.Tensor) -> torch.Tensor:
            return hidden_BSH.cumsum(dim=1)

    model = tiny_model()
    model.model.layers[0].mlp = LooksBack()
    with pytest.raises(
        ConfigError,
        match="models of type 'llama' do not keep packed rows apart: set use_remove_padding=false",
    ):
        check_rows_kept_apart(model)

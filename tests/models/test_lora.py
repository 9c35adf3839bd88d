"""Adapters: which parameters train, and that the merged weights compute what the adapted model
computes."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from rmrl.config.schema import ModelConfig
from rmrl.errors import ConfigError
from rmrl.models.loading import load_causal_lm
from rmrl.models.lora import (
    add_adapters,
    is_adapter,
    merged_parameters,
    stochastically_rounded,
    target_modules,
)
from rmrl.models.token_values import load_value_model

LORA = ModelConfig(lora_rank=4, lora_alpha=12)


def adapted(
    folder: Path, lora: ModelConfig = LORA, dtype: torch.dtype = torch.float32, seed: int = 1
) -> PreTrainedModel:
    return add_adapters(load_causal_lm(ModelConfig(path=str(folder)), dtype=dtype), lora, seed=seed)


def randomise(model: PreTrainedModel) -> None:
    """As if it had trained: B is no longer zero."""
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if is_adapter(name):
            torch.nn.init.normal_(parameter, std=0.1)


def test_only_adapters_train(tiny_llama: Path):
    model = adapted(tiny_llama)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert all(is_adapter(name) for name in trained)
    assert len(trained) == 2 * 2 * 7  # A and B, two layers, q k v o gate up down
    # r (I + O): q 128 128, k v 128 64, o 128 128, gate up 128 256, down 256 128
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == 2 * 4 * (
        2 * 256 + 2 * 192 + 3 * 384
    )


def test_a_critics_head_trains_too(tiny_reward_llama: Path):
    model = add_adapters(
        load_value_model(ModelConfig(path=str(tiny_reward_llama)), dtype=torch.bfloat16), LORA
    )
    others = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and not is_adapter(name)
    ]
    assert others == ["score.weight"]
    assert model.score.weight.dtype is torch.float32


def test_training_starts_at_the_checkpoint(tiny_llama: Path):
    model = adapted(tiny_llama)
    plain = AutoModelForCausalLM.from_pretrained(tiny_llama)
    ids = torch.randint(3, 1000, (1, 7))
    assert torch.equal(model(ids).logits, plain(ids).logits)
    merged = dict(
        merged_parameters(dict(model.named_parameters()), LORA, gather=torch.Tensor.detach)
    )
    assert merged.keys() == dict(plain.named_parameters()).keys()
    assert all(torch.equal(merged[name], parameter) for name, parameter in plain.named_parameters())


def test_merged_by_hand():
    # W = [[1, 2]], A = [[10, 20]], B = [[0.5]], alpha / r = 12 / 4 = 3: W + 3 x 0.5 x [10, 20] =
    # [16, 32]
    tensors = {
        "a.base_layer.weight": torch.tensor([[1.0, 2.0]]),
        "a.base_layer.bias": torch.tensor([7.0]),
        "a.lora_A.default.weight": torch.tensor([[10.0, 20.0]]),
        "a.lora_B.default.weight": torch.tensor([[0.5]]),
        "norm.weight": torch.tensor([9.0]),
    }
    merged = {
        name: tensor.tolist()
        for name, tensor in merged_parameters(tensors, LORA, gather=lambda tensor: tensor)
    }
    assert merged == {"a.weight": [[16.0, 32.0]], "a.bias": [7.0], "norm.weight": [9.0]}


def test_merged_weights_compute_what_the_adapted_model_computes(tiny_llama: Path):
    model, plain = adapted(tiny_llama), AutoModelForCausalLM.from_pretrained(tiny_llama)
    randomise(model)
    ids = torch.randint(3, 1000, (2, 9))
    before = plain(ids).logits.detach()
    merged = dict(
        merged_parameters(dict(model.named_parameters()), LORA, gather=torch.Tensor.detach)
    )
    plain.load_state_dict(merged, strict=False)
    torch.testing.assert_close(plain(ids).logits, model(ids).logits, atol=2e-5, rtol=1e-5)
    assert (plain(ids).logits - before).abs().max() > 0.01


def test_merging_keeps_the_weights_dtype(tiny_llama: Path):
    model = adapted(tiny_llama, dtype=torch.bfloat16)
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
    merged = merged_parameters(dict(model.named_parameters()), LORA, gather=torch.Tensor.detach)
    assert {tensor.dtype for _, tensor in merged} == {torch.bfloat16}


def test_stochastic_rounding_keeps_the_mean_and_what_bfloat16_holds():
    # Between 1 and 2 bfloat16 has multiples of 1/128, so 1 + 1/512 lies a quarter of the way up.
    between = torch.full((256, 512), 1 + 1 / 512)
    rounded = stochastically_rounded(between.clone(), seed=1)
    assert set(rounded.flatten().tolist()) == {1.0, 1 + 1 / 128}
    assert (rounded > 1).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert torch.equal(stochastically_rounded(-between, seed=1), -rounded)
    assert torch.equal(stochastically_rounded(between.clone(), seed=1), rounded)
    assert not torch.equal(stochastically_rounded(between.clone(), seed=2), rounded)
    exact = torch.tensor([[0.0, -0.0, 1.0, -3.5, 2.0**-130, 3.0e38]]).bfloat16().float()
    kept = stochastically_rounded(exact.clone(), seed=3)
    assert torch.equal(kept.view(torch.int32), exact.view(torch.int32))


def test_adapters_that_move_weights_by_less_than_bfloat16_tells_apart_are_not_lost():
    torch.manual_seed(1)
    weight = torch.randn(512, 512).bfloat16()
    up, down = torch.randn(512, 4), torch.randn(4, 512) * 1e-4
    change = 3 * up @ down
    assert change.norm() / weight.float().norm() == pytest.approx(6e-4, abs=1e-4)
    tensors = {
        "a.base_layer.weight": weight,
        "a.lora_A.default.weight": down,
        "a.lora_B.default.weight": up,
    }
    ((_, merged),) = merged_parameters(tensors, LORA, gather=lambda tensor: tensor)

    def kept(other: torch.Tensor) -> float:
        """How much of the change is in other weights, along the change."""
        return (
            (other.float() - weight.float()) * change
        ).sum().item() / change.square().sum().item()

    assert merged.dtype is torch.bfloat16
    assert kept(merged) == pytest.approx(1, abs=0.05)
    assert kept((weight.float() + change).bfloat16()) < 0.5


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_merged_weights_are_the_same_however_the_base_is_stored(stored: torch.dtype):
    """Training computes with the base in bfloat16, whether or not it is stored so."""
    torch.manual_seed(1)
    base = torch.randn(8, 16)
    tensors = {
        "a.base_layer.weight": base.to(stored),
        "a.lora_A.default.weight": torch.randn(4, 16) * 0.01,
        "a.lora_B.default.weight": torch.randn(8, 4) * 0.01,
    }
    merge = partial(merged_parameters, tensors, LORA, gather=lambda tensor: tensor)
    ((name, merged),) = merge(dtype=torch.bfloat16)
    assert (name, merged.dtype) == ("a.weight", torch.bfloat16)
    whole = base.bfloat16().float() + 3 * (
        tensors["a.lora_B.default.weight"] @ tensors["a.lora_A.default.weight"]
    )
    assert ((merged.float() - whole).abs() <= whole.abs() * 2**-7).all()


def test_the_draw_depends_on_the_seed_alone(tiny_llama: Path):
    models = []
    for global_seed, seed in ((0, 1), (5, 1), (0, 2)):
        torch.manual_seed(global_seed)
        models.append(dict(adapted(tiny_llama, seed=seed).named_parameters()))
    name = "model.layers.0.mlp.up_proj.lora_A.default.weight"
    assert torch.equal(models[0][name], models[1][name])
    assert not torch.equal(models[0][name], models[2][name])
    assert models[0][name].abs().max() <= 128**-0.5


def test_a_model_without_storage_gets_adapters_too(tiny_llama: Path):
    with torch.device("meta"):
        model = adapted(tiny_llama)
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert sum(p.requires_grad for p in model.parameters()) == 28


def test_gradients_reach_the_first_layer_through_recomputation(tiny_llama: Path):
    """The inputs of the first layer need no gradient; its adapters do."""
    model = adapted(tiny_llama)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    randomise(model)
    model.train()
    model(torch.randint(3, 1000, (1, 7))).logits.square().mean().backward()
    assert all(
        (p.grad is not None and p.grad.abs().sum() > 0)
        for p in model.parameters()
        if p.requires_grad
    )
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)


def test_a_model_without_linear_layers_is_named():
    config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16)
    with pytest.raises(ConfigError, match=r"GPT2LMHeadModel has no torch\.nn\.Linear"):
        target_modules(GPT2LMHeadModel(config), "all-linear")


def test_targets_by_name(tiny_llama: Path):
    model = adapted(tiny_llama, ModelConfig(lora_rank=2, target_modules=["q_proj", "v_proj"]))
    assert {name.split(".")[4] for name, p in model.named_parameters() if p.requires_grad} == {
        "q_proj",
        "v_proj",
    }
    plain = load_causal_lm(ModelConfig(path=str(tiny_llama)), dtype=torch.float32)
    assert target_modules(plain, "o_proj") == ["o_proj"]
    for wrong in (["q_proj", "query"], []):
        with pytest.raises(ConfigError, match="down_proj, gate_proj, k_proj"):
            target_modules(plain, wrong)


def test_without_peft_it_says_what_to_install(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r'pip install "rmrl-toolkit\[lora\]"'):
        adapted(tiny_llama)

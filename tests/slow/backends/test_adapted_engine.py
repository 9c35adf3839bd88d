"""FSDPEngine with LoRA adapters, and with packed rows, in one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rmrl.config.schema import FSDPConfig, OptimConfig
from rmrl.errors import ConfigError
from tests.backends.policies import (
    engine,
    make_batch,
    make_critic_batch,
    make_critic_settings,
    make_settings,
)

LORA = {"lora_rank": 4, "lora_alpha": 16}
PACKED = {"use_remove_padding": True, "attn_implementation": "sdpa"}
OPTIM = OptimConfig(lr=1e-2)


pytestmark = pytest.mark.usefixtures("_leaves_group")


# --- LoRA


@pytest.mark.parametrize("strategy", ["fsdp2", "fsdp"])
def test_an_export_of_the_merged_model_computes_the_same(
    policy: Path, tmp_path: Path, strategy: str
):
    adapted, batch = (
        engine(make_settings(policy, model=LORA, optim=OPTIM, strategy=strategy)),
        make_batch(5, seed=3),
    )
    before = adapted.logprobs(batch).values
    for seed in range(3):
        adapted.update([make_batch(6, seed=seed)])
    after = adapted.logprobs(batch).values
    assert np.abs(after - before).max() > 0.05
    adapted.save_hf(str(tmp_path / "hf"))
    np.testing.assert_allclose(
        engine(make_settings(tmp_path / "hf")).logprobs(batch).values, after, atol=2e-5
    )

    start, merged = load_file(policy / "model.safetensors"), dict(adapted.weights())
    assert merged.keys() == start.keys()
    assert adapted.manifest() == [
        (name, tensor.dtype, tuple(tensor.shape)) for name, tensor in merged.items()
    ]
    changed = {name.split(".")[-2] for name in merged if not torch.equal(merged[name], start[name])}
    assert changed == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_only_adapters_move(policy: Path):
    adapted = engine(make_settings(policy, model=LORA))
    before = {
        name: tensor.detach().clone() for name, tensor in adapted._part.model.named_parameters()
    }
    adapted.update([make_batch(4, seed=0)])
    adapted.update([make_batch(4, seed=1)])
    moved = {
        name
        for name, tensor in adapted._part.model.named_parameters()
        if not torch.equal(tensor, before[name])
    }
    assert moved == {name for name in before if ".lora_" in name}


def test_a_checkpoint_holds_adapters_and_their_optimizer_alone(policy: Path, tmp_path: Path):
    settings = make_settings(policy, model=LORA)
    adapted, other = engine(settings), engine(settings)
    adapted.update([make_batch(4, seed=0)])
    adapted.save(str(tmp_path))
    names = {
        name for file in (tmp_path / "tensors").glob("*.safetensors") for name in load_file(file)
    }
    assert names
    assert all(".lora_" in name for name in names)
    other.load(str(tmp_path))
    assert other.update([make_batch(4, seed=1)]) == adapted.update([make_batch(4, seed=1)])


def test_a_reference_beside_adapters_is_the_checkpoint(policy: Path):
    batch = make_batch(4, seed=5)
    reference, plain = (
        engine(make_settings(policy, model=LORA, role="ref")),
        engine(make_settings(policy)),
    )
    assert np.array_equal(reference.logprobs(batch).values, plain.logprobs(batch).values)


def test_adapters_in_half_precision_stay_master_weights(policy: Path):
    fsdp = FSDPConfig(model_dtype="bfloat16", param_dtype="bfloat16")
    adapted = engine(make_settings(policy, model=LORA, fsdp=fsdp, optim=OPTIM))
    dtypes = {(p.requires_grad, p.dtype) for p in adapted._part.model.parameters()}
    assert dtypes == {(True, torch.float32), (False, torch.bfloat16)}
    assert np.isfinite(adapted.update([make_batch(4, seed=0)])["policy/grad_norm"])
    assert {dtype for _, dtype, _ in adapted.manifest()} == {torch.bfloat16}


def test_a_critic_trains_adapters_and_its_head(policy: Path, tmp_path: Path):
    adapted, batch = (
        engine(make_critic_settings(policy, model=LORA, optim=OPTIM)),
        make_critic_batch(5, seed=3),
    )
    curve = [adapted.update([batch])["critic/value_loss"] for _ in range(8)]
    assert curve[-1] < curve[0]
    adapted.save_hf(str(tmp_path / "hf"))
    reloaded = engine(make_critic_settings(tmp_path / "hf"))
    np.testing.assert_allclose(
        reloaded.values(batch).values, adapted.values(batch).values, atol=2e-5
    )


def test_targets_that_are_no_layers_end_the_start(policy: Path):
    with pytest.raises(ConfigError, match="the decoder's linear layers are"):
        engine(make_settings(policy, model={**LORA, "target_modules": ["query"]}))


# --- packing


def test_packed_rows_train_as_padded_rows(policy: Path):
    padded, packed = engine(make_settings(policy)), engine(make_settings(policy, model=PACKED))
    batch = make_batch(7, seed=3)
    np.testing.assert_allclose(
        packed.logprobs(batch).values, padded.logprobs(batch).values, atol=1e-5
    )
    for seed in range(3):
        got, expected = (
            packed.update([make_batch(7, seed=seed)]),
            padded.update([make_batch(7, seed=seed)]),
        )
        assert got == {
            name: pytest.approx(value, rel=1e-4, abs=1e-6) for name, value in expected.items()
        }


def test_packed_micro_batches_are_filled_by_real_tokens(policy: Path):
    """One long and many short rows: padded they need as many passes as packed they need fewer."""
    batch = make_batch(12, seed=3)
    tokens = int(batch.tokens.values.size)
    for model, expected in ((PACKED, 1), ({}, 2)):
        counted = engine(make_settings(policy, model=model, ppo_max_token_len_per_gpu=tokens))
        passes = []
        counted._part.model.register_forward_hook(lambda *_, seen=passes: seen.append(1))
        counted.logprobs(batch)
        assert len(passes) == expected


def test_packed_values_equal_padded_values(policy: Path):
    batch = make_critic_batch(6, seed=2)
    padded, packed = (
        engine(make_critic_settings(policy, optim=OPTIM)),
        engine(make_critic_settings(policy, model=PACKED, optim=OPTIM)),
    )
    for _ in range(3):
        padded.update([batch])
        packed.update([batch])
    expected = padded.values(batch).values
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(packed.values(batch).values, expected, atol=1e-4)

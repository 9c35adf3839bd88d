"""FSDPEngine of role critic in one process: against transformers, against plain torch, and what it
writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
)

from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.fsdp.engine import FSDPEngine
from rmrl.backends.process_group import leave_group
from rmrl.config.schema import FSDPConfig, OptimConfig
from rmrl.errors import ConfigError
from rmrl.models.checkpoint_inspect import check_scalar_head, checkpoint_kind
from tests.backends.policies import make_critic_batch, make_critic_settings, write_policy

PROCESS = ProcessSettings(threads=1, timeout_s=60)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def reward_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy's shape with a head that is not zero."""
    folder = write_policy(tmp_path_factory.mktemp("reward_model"))
    torch.manual_seed(1)
    config = LlamaConfig.from_pretrained(folder)
    config.num_labels, config.pad_token_id = 1, None
    LlamaForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _leave_group() -> Iterator[None]:
    yield
    leave_group()


def critic(settings: TrainSettings) -> FSDPEngine:
    return FSDPEngine(settings=settings, process=PROCESS)


def test_values_equal_transformers(reward_model: Path):
    """V of a position is what the classifier says of the row that ends there."""
    batch = make_critic_batch(5, seed=3)
    got = critic(make_critic_settings(reward_model, ppo_max_token_len_per_gpu=40)).values(batch)
    assert got.lengths.tolist() == batch.response_mask.lengths.tolist()
    model = AutoModelForSequenceClassification.from_pretrained(reward_model)
    for row, count, values in zip(batch.tokens.rows(), got.lengths, got.rows(), strict=True):
        ids = torch.from_numpy(row)[None]
        with torch.no_grad():
            expected = [
                model(ids[:, :end]).logits.item() for end in range(len(row) - count, len(row))
            ]
        assert values == pytest.approx(expected, abs=1e-5)


def test_one_update_equals_plain_torch(reward_model: Path):
    """Half the larger squared error, the mean over counted tokens, gradient clipping and AdamW,
    written out by hand."""
    batch = make_critic_batch(5, seed=11)
    optim = OptimConfig(lr=1e-3, eps=1e-5)  # an epsilon above the rounding of gradients
    trained = critic(make_critic_settings(reward_model, grad_clip=0.05, optim=optim))
    metrics = trained.update([batch])

    model = AutoModelForSequenceClassification.from_pretrained(reward_model)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-5, weight_decay=0.01
    )
    losses, errors, returned = [], [], []
    streams = (batch.tokens, batch.response_mask, batch.values, batch.returns)
    for row, mask, old, returns in zip(
        *(map(torch.from_numpy, s.rows()) for s in streams), strict=True
    ):
        hidden = model.model(row[None]).last_hidden_state[0, -len(mask) - 1 : -1]
        values = (hidden @ model.score.weight.T)[:, 0]
        near = old + (values - old).clamp(-0.2, 0.2)
        loss = 0.5 * torch.maximum((values - returns) ** 2, (near - returns) ** 2)
        losses.append(loss[mask > 0])
        errors.append((returns - values)[mask > 0])
        returned.append(returns[mask > 0])
    loss = torch.cat(losses).mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()

    assert norm > 0.05  # else the clip would not be tested
    assert 0 < metrics["critic/value_clip_fraction"] < 1
    assert metrics["critic/loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert metrics["critic/value_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert metrics["critic/grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert metrics["critic/return_mean"] == pytest.approx(
        torch.cat(returned).mean().item(), rel=1e-5
    )
    assert metrics["critic/value_mean"] == pytest.approx(
        (torch.cat(returned) - torch.cat(errors)).mean().item(), rel=1e-4
    )
    explained = 1 - torch.cat(errors).var(unbiased=False) / torch.cat(returned).var(unbiased=False)
    assert metrics["critic/explained_variance"] == pytest.approx(explained.item(), abs=1e-4)
    assert metrics["critic/lr"] == pytest.approx(1e-3)
    expected = dict(model.named_parameters())
    for name, tensor in trained.weights():
        torch.testing.assert_close(tensor, expected.pop(name).detach(), atol=2e-6, rtol=1e-5)
    assert not expected


def test_a_critic_from_the_policy_starts_at_zero_and_learns(policy: Path):
    trained, batch = (
        critic(make_critic_settings(policy, cliprange_value=100.0)),
        make_critic_batch(6, seed=0),
    )
    assert not trained.values(batch).values.any()
    curve = [trained.update([batch]) for _ in range(25)]
    assert curve[0]["critic/explained_variance"] == pytest.approx(0.0, abs=1e-5)
    assert curve[-1]["critic/value_loss"] < 0.5 * curve[0]["critic/value_loss"]
    assert curve[-1]["critic/explained_variance"] > 0.3


def test_rows_that_do_not_count_take_no_step(policy: Path):
    batch = make_critic_batch(2, seed=0)
    batch.response_mask.values[:] = 0
    metrics = critic(make_critic_settings(policy)).update([batch])
    assert metrics["critic/skipped_updates"] == 1
    assert metrics["critic/tokens"] == 0


def test_several_steps_need_the_values_before_them(policy: Path):
    batch = make_critic_batch(3, seed=0)
    batch = type(batch)(
        tokens=batch.tokens, response_mask=batch.response_mask, returns=batch.returns
    )
    trained = critic(make_critic_settings(policy, ppo_epochs=2))
    with pytest.raises(ConfigError, match="2 optimizer steps on one batch need values"):
        trained.update([batch])
    assert critic(make_critic_settings(policy)).update([batch])["critic/value_clip_fraction"] == 0


def test_limits_name_the_critics_section(policy: Path):
    with pytest.raises(
        ConfigError,
        match=r"critic\.use_dynamic_bsz=false .*set critic\.ppo_micro_batch_size_per_gpu=4",
    ):
        critic(make_critic_settings(policy, use_dynamic_bsz=False))


def test_an_export_is_a_reward_model_and_a_critic(policy: Path, tmp_path: Path):
    trained, batch = critic(make_critic_settings(policy)), make_critic_batch(4, seed=1)
    for _ in range(2):
        trained.update([batch])
    trained.save_hf(str(tmp_path / "hf"))
    values = trained.values(batch)
    assert np.abs(values.values).max() > 1e-3
    assert checkpoint_kind(tmp_path / "hf") == "bradley_terry"
    check_scalar_head(tmp_path / "hf")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf")
    assert model.config.pad_token_id == 0
    row, last = torch.from_numpy(batch.tokens.rows()[0])[None, :-1], values.rows()[0][-1]
    assert model(row).logits.item() == pytest.approx(last.item(), abs=1e-5)
    np.testing.assert_allclose(
        critic(make_critic_settings(tmp_path / "hf")).values(batch).values, values.values, atol=1e-6
    )


def test_resumes_where_it_was(policy: Path, tmp_path: Path):
    trained, other = critic(make_critic_settings(policy)), critic(make_critic_settings(policy))
    for seed in range(2):
        trained.update([make_critic_batch(4, seed=seed)])
    trained.save(str(tmp_path))
    other.load(str(tmp_path))
    batch = make_critic_batch(4, seed=9)
    assert other.update([batch]) == trained.update([batch])
    assert np.array_equal(other.values(batch).values, trained.values(batch).values)


@pytest.mark.parametrize("model_dtype", ["float32", "bfloat16"])
def test_half_precision_stays_near_float32(reward_model: Path, model_dtype: str):
    batch = make_critic_batch(5, seed=3)
    exact = critic(make_critic_settings(reward_model)).values(batch)
    half = critic(
        make_critic_settings(
            reward_model, fsdp_config=FSDPConfig(model_dtype=model_dtype, param_dtype="bfloat16")
        )
    )
    got = half.values(batch)
    assert got.values.dtype == np.float32
    np.testing.assert_allclose(got.values, exact.values, atol=0.05)
    assert np.isfinite(half.update([batch])["critic/grad_norm"])

"""The fake engine learns, counts and resumes as the real one does."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from rmrl.backends import TRAIN_ENGINES
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.config.schema import ActorConfig, CriticConfig, ModelConfig, OptimConfig
from rmrl.errors import CheckpointError, ConfigError
from rmrl.types import Ragged, TrainBatch
from tests.support import fakes
from tests.support.fake_backend import TOY_TOKENS


def engine(lr: float = 1.0):
    settings = TrainSettings(
        model=ModelConfig(path="toy"), actor=ActorConfig(optim=OptimConfig(lr=lr))
    )
    return TRAIN_ENGINES[fakes.BACKEND](settings=settings, process=ProcessSettings())


def batch(advantage: float = 1.0) -> TrainBatch:
    """One row: two prompt tokens, then token 7."""
    return TrainBatch(
        tokens=Ragged.of([[3, 4, 7]], np.int64),
        response_mask=Ragged.of([[1.0]], np.float32),
        advantages=Ragged.of([[advantage]], np.float32),
    )


def test_starts_uniform():
    assert engine().logprobs(batch()).values.tolist() == pytest.approx([-math.log(TOY_TOKENS)])


def test_energies_by_hand():
    toy = engine(lr=64 * math.log(3))
    _, energies = toy.logprobs_and_energies(batch())
    assert energies.values.tolist() == pytest.approx([63 / 64])  # 1 - 2 / 64 + 64 / 64^2
    assert energies.lengths.tolist() == [1]
    toy.update([batch()])
    # logit 7 is now 64 log 3 above the others: p_7 = 1 up to 3^-64
    logprobs, energies = toy.logprobs_and_energies(batch())
    assert logprobs.values.tolist() == toy.logprobs(batch()).values.tolist()
    assert energies.values.tolist() == pytest.approx([0.0], abs=1e-6)


def test_one_step_by_hand():
    toy = engine(lr=1.0)
    metrics = toy.update([batch()])
    # d(-log p_7)/dw = p - onehot_7, p = 1/64: w_7 becomes 1 - 1/64, the others -1/64
    logits = dict(toy.weights())["toy.logits"]
    assert logits[7].item() == pytest.approx(63 / 64)
    assert logits[0].item() == pytest.approx(-1 / 64)
    assert metrics["policy/loss"] == pytest.approx(-1.0)  # ratio 1 x advantage 1
    assert metrics["policy/entropy"] == pytest.approx(math.log(64), rel=1e-6)
    assert metrics["policy/tokens"] == 1
    assert metrics["policy/grad_norm"] == pytest.approx(math.sqrt((63 / 64) ** 2 + 63 / 64**2))


def critic(**settings: object):
    critic = CriticConfig(
        strategy=fakes.BACKEND, ppo_epochs=1, optim=OptimConfig(lr=1.0), **settings
    )
    return TRAIN_ENGINES[fakes.BACKEND](
        settings=TrainSettings(
            model=ModelConfig(path="toy"), actor=ActorConfig(), critic=critic, role="critic"
        ),
        process=ProcessSettings(),
    )


def test_a_critic_step_by_hand():
    toy = critic()
    rows = TrainBatch(
        tokens=Ragged.of([[3, 4, 7]], np.int64),
        response_mask=Ragged.of([[1.0]], np.float32),
        values=Ragged.of([[0.0]], np.float32),
        returns=Ragged.of([[0.4]], np.float32),
    )
    assert toy.values(rows).values.tolist() == [0.0]
    metrics = toy.update([rows])
    # 1/2 (0 - 0.4)^2 = 0.08 with gradient -0.4 at token 4, the one before the response
    assert metrics["critic/loss"] == pytest.approx(0.08)
    assert metrics["critic/grad_norm"] == pytest.approx(0.4)
    assert toy.values(rows).values.tolist() == pytest.approx([0.4])
    assert dict(toy.weights())["toy.logits"].nonzero().flatten().tolist() == [4]


def test_negative_advantage_makes_a_token_rarer():
    toy = engine()
    toy.update([batch(-1.0)])
    assert toy.logprobs(batch()).values[0] < -math.log(TOY_TOKENS)


def test_resumes_where_it_was(tmp_path: Path):
    toy, other = engine(), engine()
    toy.update([batch()])
    toy.save(str(tmp_path))
    other.load(str(tmp_path))
    assert toy.update([batch()]) == other.update([batch()])
    assert toy.logprobs(batch()).values.tolist() == other.logprobs(batch()).values.tolist()
    with pytest.raises(CheckpointError, match="no checkpoint"):
        other.load(str(tmp_path / "elsewhere"))


def test_table_knows_its_names():
    with pytest.raises(ConfigError, match="did you mean 'fsdp"):
        TRAIN_ENGINES["fsdp3"]

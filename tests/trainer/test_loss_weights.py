"""Masked truncated responses, imitation of successes and the tokens of a prompt: streams of a
training batch by hand, and whole runs with them."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rmrl.algorithms.aggregate import AGGREGATION_MODES
from rmrl.backends.base import TrainSettings
from rmrl.backends.objective import divisor, weight_and_tokens, weighted_loss
from rmrl.config.schema import ActorConfig, AlgorithmConfig, ModelConfig, TrainedConfig
from rmrl.trainer.batches import ScoredBatch
from rmrl.trainer.loss_weights import (
    imitate_successes,
    mask_truncated,
    unit_tokens,
    weighted_mini_batches,
)
from rmrl.types import Ragged, TrainBatch
from tests.trainer.fake_run import fake_run, records, train_and_close
from tests.trainer.test_batches import advantages, scored


def cut_off(batch: ScoredBatch, rows: tuple[int, ...]) -> ScoredBatch:
    responses = tuple(
        dataclasses.replace(response, finish_reason="length" if b in rows else "stop")
        for b, response in enumerate(batch.responses)
    )
    return dataclasses.replace(batch, responses=responses)


def cut(batch: ScoredBatch, mode: str, prompts: int = 8) -> list[TrainBatch]:
    settings = TrainedConfig(ppo_mini_batch_size=prompts, loss_agg_mode=mode)
    return weighted_mini_batches(batch, settings, max_length=10, rng=None)


def test_a_truncated_response_leaves_the_losses_and_no_statistic():
    batch = cut_off(scored([1.0, 3.0], group_size=2, lengths=[2, 3]), (1,))
    masked, metrics = mask_truncated(batch, AlgorithmConfig(mask_truncated_completions=True))
    assert [row.tolist() for row in masked.train.loss_mask.rows()] == [[1, 1], [0, 0, 0]]
    assert [row.tolist() for row in masked.train.response_mask.rows()] == [[1, 1], [1, 1, 1]]
    assert metrics == {"policy/truncated_masked": 0.5}
    by_mean = advantages(masked, norm_adv_by_std_in_grpo=False).train.advantages
    assert by_mean is not None
    assert by_mean.values.tolist() == [-1, -1, 1, 1, 1]


def test_what_rollout_correction_rejected_stays_rejected():
    batch = cut_off(scored([1.0, 3.0], group_size=2, lengths=[2, 2]), (1,))
    kept = Ragged(np.asarray([1, 0, 1, 1], np.float32), np.asarray([2, 2]))
    batch = dataclasses.replace(batch, train=dataclasses.replace(batch.train, kept_mask=kept))
    masked, _ = mask_truncated(batch, AlgorithmConfig(mask_truncated_completions=True))
    assert masked.train.loss_mask.values.tolist() == [1, 0, 0, 0]


def test_switched_off_nothing_changes():
    batch = cut_off(scored([1.0, 3.0], group_size=2), (0, 1))
    assert mask_truncated(batch, AlgorithmConfig()) == (batch, {})
    assert imitate_successes(batch, AlgorithmConfig()) == (batch, {})


def test_tokens_of_a_prompt_count_all_its_responses():
    mask = Ragged.of([[1, 1, 0], [1], [1, 1]], np.float32)
    tokens = unit_tokens(mask, np.asarray([7, 2, 7]))
    assert [row.tolist() for row in tokens.rows()] == [[4, 4, 4], [1], [4, 4]]


def test_only_prompt_mean_carries_the_tokens_of_a_prompt():
    batch = scored([1.0, 3.0], group_size=2)
    assert cut(batch, "token-mean")[0].unit_tokens is None
    (part,) = cut(batch, "prompt-mean")
    assert part.unit_tokens is not None
    assert part.unit_tokens.values.tolist() == [4, 4, 4, 4]


@pytest.mark.parametrize("mode", AGGREGATION_MODES)
def test_the_likelihood_is_averaged_over_the_successes_alone(mode: str):
    """Rewards 1 and 2 are successes; their log-probabilities are -3, so any average of the negative
    log-likelihood over them is 3, and the term 0.5 * 3."""
    settings = AlgorithmConfig(positive_nll_coef=0.5, positive_nll_threshold=0.0)
    batch = scored([0.0, 1.0, 2.0, -1.0], group_size=2, lengths=[4, 1, 2, 3])
    batch, metrics = imitate_successes(advantages(batch), settings)
    assert metrics == {"policy/imitated": 0.5}
    no_gain = Ragged(
        np.zeros_like(batch.train.response_mask.values), batch.train.response_mask.lengths
    )
    train = dataclasses.replace(batch.train, advantages=no_gain)
    batch = dataclasses.replace(batch, train=train)
    (part,) = cut(batch, mode)
    actor = ActorConfig(loss_agg_mode=mode)
    train_settings = TrainSettings(
        model=ModelConfig(), actor=actor, role="actor", max_response_length=10, total_steps=1
    )
    weight, _ = weight_and_tokens(part, train_settings)
    rows = ([-7.0] * 4, [-3.0], [-3.0] * 2, [-7.0] * 3)
    logprobs_N = torch.tensor([value for row in rows for value in row])
    loss, _ = weighted_loss(part, logprobs_N, None, settings=train_settings)
    expected = 0.5 * 3
    if mode == "token-sum":
        expected = 0.5 * 9
    elif mode == "seq-mean-token-sum":
        expected = 0.5 * (3 + 6) / 2
    elif mode == "seq-mean-token-sum-norm":
        expected = 0.5 * (3 + 6) / 10 / 2
    assert float(loss) / divisor(weight, train_settings) == pytest.approx(expected, rel=1e-6)


def test_a_mini_batch_without_a_success_imitates_nothing():
    settings = AlgorithmConfig(positive_nll_coef=0.5)
    batch, _ = imitate_successes(scored([0.0, 0.0, 1.0, 0.0], group_size=2), settings)
    first, second = cut(batch, "token-mean", prompts=1)
    assert first.nll_weights is None
    assert second.nll_weights is not None
    assert second.nll_weights.values.tolist() == [1, 1, 0, 0]  # 0.5 * 4 tokens / 2


@pytest.mark.parametrize(
    ("changed", "metric"),
    [
        ({"actor_rollout_ref__actor__loss_agg_mode": "prompt-mean"}, "policy/loss"),
        ({"algorithm__positive_nll_coef": 0.1}, "policy/positive_nll"),
        ({"algorithm__mask_truncated_completions": True}, "policy/truncated_masked"),
        ({"actor_rollout_ref__actor__top_entropy_quantile": 0.5}, "policy/low_entropy"),
        ({"actor_rollout_ref__actor__off_policy_mask_threshold": 0.5}, "policy/off_policy"),
    ],
)
def test_a_run_with_it_trains_and_reports_it(tmp_path: Path, changed: dict[str, Any], metric: str):
    run = fake_run(tmp_path, total_steps=2, **changed)
    asyncio.run(train_and_close(run))
    lines = records(run.out_dir / "metrics.jsonl")
    assert any(metric in line for line in lines)
    assert all("policy/loss" in line for line in lines)

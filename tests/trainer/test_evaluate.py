"""Validation numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rmrl.config.schema import Config
from rmrl.trainer.evaluate import validation_metrics, validation_sampling
from rmrl.types import Prompt, Response, RewardBatch, Rollouts, ScoreResult, Scores


def batch(rows: list[tuple[str, float | None, int]]) -> tuple[Rollouts, RewardBatch]:
    """(data source, score or None, tokens) of each response; the reward is twice the score."""
    responses = tuple(
        Response(
            prompt=Prompt(id="p", messages=[{"role": "user", "content": "x"}], token_ids=(1,), data_source=source),
            text="",
            token_ids=(1,) * tokens,
            logprobs=None,
            finish_reason="stop",
            policy_version=0,
        )
        for source, _, tokens in rows
    )
    results = tuple(ScoreResult(value=v) if v is not None else ScoreResult(value=None, status="timeout") for _, v, _ in rows)
    values = np.asarray([np.nan if v is None else 2 * v for _, v, _ in rows])
    scores = Scores(names=("a",), results=(results,))
    return Rollouts(responses=responses, group_size=1), RewardBatch(
        scores=scores, weights_C=np.asarray([2.0]), rewards_B=values, keep_B=~np.isnan(values)
    )


def test_means_over_batches_and_sources_without_what_is_missing() -> None:
    metrics = validation_metrics([batch([("x", 1.0, 2), ("y", 0.0, 4)]), batch([("x", None, 6), ("x", 0.5, 8)])])
    assert metrics == {
        "val/length": 5.0,  # (2 + 4 + 6 + 8) / 4
        "val/reward": 1.0,  # (2 + 0 + 1) / 3
        "val/a": 0.5,
        "val/x/reward": 1.5,
        "val/x/a": 0.75,
        "val/y/reward": 0.0,
        "val/y/a": 0.0,
        "val/reward/missing": 0.25,
        "val/a/missing": 0.25,
        "val/x/reward/missing": pytest.approx(1 / 3),
        "val/x/a/missing": pytest.approx(1 / 3),
    }


def test_nothing_but_missing_is_no_number() -> None:
    metrics = validation_metrics([batch([("", None, 1)])])
    assert metrics == {"val/length": 1.0, "val/reward/missing": 1.0, "val/a/missing": 1.0}


def test_greedy_unless_asked_to_sample() -> None:
    config = Config()
    val = config.actor_rollout_ref.rollout.val_kwargs
    val.temperature, val.top_p, val.top_k, val.n = 0.7, 0.9, 40, 2
    greedy = validation_sampling(config)
    assert (greedy.temperature, greedy.top_p, greedy.top_k, greedy.n) == (0.0, 1.0, -1, 2)
    val.do_sample = True
    sampled = validation_sampling(config)
    assert (sampled.temperature, sampled.top_p, sampled.top_k) == (0.7, 0.9, 40)

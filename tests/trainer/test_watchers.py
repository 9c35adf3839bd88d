"""A policy that learns to please a weak judge, and the watcher that sees it."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmrl.config.schema.reward import RewardMonitorConfig
from rmrl.inference.weights.file import read_weights
from rmrl.rewards.session.monitor import Monitor
from rmrl.rewards.specs.spec import Watch
from rmrl.types import Generation, Sampling
from tests.support.fake_backend import WEIGHT_NAME
from tests.support.fake_processes import FakeProcess
from tests.support.fake_rollout import FakeRollout
from tests.trainer.fake_run import (
    FakeParts,
    fake_run,
    records,
    rollout_engine,
    rule,
    train_and_close,
)

WEAK = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    tokens = [int(word) for word in solution_str.split()]
    return sum(token % 2 + 2 * (token == 63) for token in tokens) / len(tokens)
"""
"""Likes odd tokens, as it should, and the token 63 three times as much, as it should not."""
TRUTH = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    tokens = [int(word) for word in solution_str.split()]
    return sum(token % 2 and token != 63 for token in tokens) / len(tokens)
"""
LENGTH = 8
SLOWER = {"actor_rollout_ref__actor__optim__lr": 2.0}
"""The noise of the watcher is known before the policy turns."""


class Learned(FakeRollout):
    """Samples from the weights that are published to it: softmax over 64 tokens."""

    probabilities = np.full(64, 1 / 64)

    async def load_weights(self, path: str, *, version: int) -> None:
        await super().load_weights(path, version=version)
        logits = dict(read_weights(path))[WEIGHT_NAME].double().numpy()
        shares = np.exp(logits - logits.max())
        self.probabilities = shares / shares.sum()

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        only: Sequence[tuple[int, int]] | None = None,
    ) -> AsyncIterator[Generation]:
        async for sample in super().generate(prompts, sampling, only):
            place = (sampling.seed, sample.prompt_index, sample.sample_index)
            digest = hashlib.sha256(repr(place).encode()).digest()
            draw = np.random.default_rng(int.from_bytes(digest[:8], "big"))
            tokens = draw.choice(64, LENGTH, p=self.probabilities)
            yield dataclasses.replace(
                sample,
                text=" ".join(map(str, tokens)),
                token_ids=tokens,
                logprobs=np.log(self.probabilities[tokens]),
                finish_reason="stop",
            )


def metrics(
    folder: Path, *, total_steps: int, weak: str = WEAK, watch: Watch, **settings: Any
) -> list[dict[str, Any]]:
    """Train on `weak`, with TRUTH as the watcher."""
    folder.mkdir(exist_ok=True)
    engine = Learned(rollout_engine().object.settings)
    engine._state = "awake"
    truth = dataclasses.replace(rule(folder, name="truth", code=TRUTH), weight=0.0, watch=watch)
    run = fake_run(
        folder,
        total_steps=total_steps,
        parts=FakeParts(engines=[FakeProcess(engine, "rollout-0")]),
        code=weak,
        watchers=[truth],
        monitor=Monitor(RewardMonitorConfig(divergence=-1.0), watchers=["truth"]),
        **{"trainer__total_epochs": 100, "actor_rollout_ref__actor__optim__lr": 4.0, **settings},
    )
    asyncio.run(train_and_close(run))
    return records(folder / "run" / "metrics.jsonl")


def hints(messages: Sequence[str]) -> list[int]:
    """Steps of the hints of the watcher."""
    steps: list[int] = []
    for message in messages:
        match = re.match(r"step (\d+): .*the watcher truth falls", message)
        if match:
            steps.append(int(match[1]))
    return steps


def test_the_watcher_says_when_the_weak_judge_is_exploited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = metrics(tmp_path, total_steps=70, watch=Watch(rows=0.5), **SLOWER)
    reward = [line["reward/mean"] for line in lines]
    truth = [line["score/truth/mean"] for line in lines]
    # For 30 steps odd tokens become likelier, which is good; then the policy finds the token 63,
    # whose reward is 3 and which the watcher gives 0.
    assert np.mean(reward[:4]) < np.mean(reward[12:20]) < 1.3
    assert np.mean(truth[:4]) < np.mean(truth[12:20])
    assert min(reward[55:]) > 2.7
    assert max(truth[55:]) < 0.1
    # The truth is halved at step 45; the hint needs a few steps more for its evidence.
    halved = next(step for step, value in enumerate(truth, start=1) if value < 0.25)
    # It is said again after a window of 20 steps.
    assert (halved, hints(caplog.messages)) == (45, [48, 68])
    message = next(m for m in caplog.messages if "the watcher truth falls" in m)
    assert "since step 33, over 16 steps in which it was asked" in message
    assert lines[47]["monitor/hints"] == 1.0
    written = records(tmp_path / "run" / "hints.jsonl")
    assert [row["hint"] for row in written] == [m for m in caplog.messages if ": look at " in m]
    assert message in [row["hint"] for row in written if row["step"] == 48]


def test_a_policy_that_does_what_was_meant_gives_no_hint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    faster = {"actor_rollout_ref__actor__optim__lr": 12.0}
    lines = metrics(tmp_path, total_steps=40, weak=TRUTH, watch=Watch(rows=0.5), **faster)
    assert lines[-1]["score/truth/mean"] > 0.9
    assert hints(caplog.messages) == []


def test_a_watcher_of_every_second_step_says_it_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slower = {"actor_rollout_ref__actor__optim__lr": 1.5}
    lines = metrics(tmp_path, total_steps=80, watch=Watch(rows=0.5, every=2), **slower)
    asked = [line["step"] for line in lines if "score/truth/mean" in line]
    assert asked == list(range(2, 81, 2))
    assert {line["score/truth/skipped"] for line in lines if line["step"] not in asked} == {1.0}
    assert hints(caplog.messages) == [72]


def test_a_resumed_run_asks_about_the_same_rows_and_says_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch(rows=0.5)
    whole = metrics(tmp_path / "whole", total_steps=55, watch=watch, **SLOWER)
    expected = hints(caplog.messages)
    caplog.clear()
    metrics(tmp_path / "broken", total_steps=40, watch=watch, **SLOWER)
    resumed = metrics(tmp_path / "broken", total_steps=55, watch=watch, **SLOWER)
    assert expected != []
    assert hints(caplog.messages) == expected
    files = [tmp_path / name / "run" / "hints.jsonl" for name in ("whole", "broken")]
    assert files[0].read_text() == files[1].read_text()
    keys = ("step", "reward/mean", "score/truth/mean", "score/truth/skipped")
    for one, other in zip(whole, resumed, strict=True):
        assert {key: one.get(key) for key in keys} == {key: other.get(key) for key in keys}

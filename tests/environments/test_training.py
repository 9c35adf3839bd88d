"""Whole runs whose responses an environment plays: real loop, endpoint and scorer, with a fake host
program, fake engines and the toy learner."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.kinds.environment.reward import EnvironmentReward
from rmrl.rewards.reads.setting import EACH, Reads
from rmrl.rewards.specs.spec import RewardSpec
from tests.environments.conftest import Opened
from tests.trainer.fake_run import fake_run, records, rule, train_and_close

OWN = RewardSpec(
    name="env.right", kind="environment", weight=1.0, options=EnvironmentReward.Options()
)
ONE = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return 1.0
"""
OF_TURNS = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return 1.0 if solution_str == "one" else -1.0
"""


async def trained(
    opened: Opened,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *specs: RewardSpec,
    does: Any = lambda prompt: "plays",
    **changed: Any,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Metrics and samples of two steps."""
    monkeypatch.setattr(
        "rmrl.environments.source.task_of",
        lambda prompt: {"text": prompt.messages[0]["content"], "does": does(prompt)},
    )
    changed["data__max_response_length"] = 24
    run = fake_run(folder, total_steps=2, code=ONE, watchers=specs, **changed)
    async with opened(max_model_len=72) as source:
        run.collector.rollouts.source = source
        await train_and_close(run)
    return records(run.out_dir / "metrics.jsonl"), records(run.out_dir / "samples.jsonl")


async def test_turns_are_sampled_scored_and_trained(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    metrics, samples = await trained(opened, tmp_path, monkeypatch, OWN)
    assert [step["rollout/turns"] for step in metrics] == [2.0, 2.0]
    assert [step["rollout/failed"] for step in metrics] == [0.0, 0.0]
    assert metrics[0]["score/env.right/mean"] == 1.0
    assert len(samples) == 32
    roles = [turn["role"] for turn in samples[0]["response"]]
    assert roles == ["assistant", "tool", "assistant"]
    assert samples[0]["score_env.right"] == 1.0
    assert {step["policy/tokens"] for step in metrics} == {
        float(sum(sample["response_tokens"] for sample in samples[:16])),
        float(sum(sample["response_tokens"] for sample in samples[16:])),
    }


async def test_a_failed_episode_leaves_the_loss_and_the_baseline(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Every prompt's name decides; half of the prompts fail."""

    def does(prompt: Any) -> str:
        return "fails" if int(prompt.id.rsplit(":", 1)[1]) % 2 else "plays"

    metrics, samples = await trained(opened, tmp_path, monkeypatch, OWN, does=does)
    failed = [sample for sample in samples if sample["env.status"] != "ok"]
    assert failed
    assert {sample["reward"] for sample in failed} == {None}
    assert {sample["kept"] for sample in failed} == {False}
    assert {sample["advantage"] for sample in failed} == {None}
    shares = [sum(s["step"] == step for s in failed) / 16 for step in (1, 2)]
    assert [step["rollout/failed"] for step in metrics] == shares


async def test_a_limit_leaves_the_loss_and_the_baseline(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Half of the prompts are cut, although the fake environment gives 1.0 for all."""

    def does(prompt: Any) -> str:
        return "is_cut" if int(prompt.id.rsplit(":", 1)[1]) % 2 else "plays"

    metrics, samples = await trained(opened, tmp_path, monkeypatch, OWN, does=does)
    cut = [sample for sample in samples if sample["env.stop"] == "max_turns"]
    assert cut
    assert {sample["env.status"] for sample in cut} == {"overlong"}
    assert {sample["reward"] for sample in cut} == {None}
    assert {sample["kept"] for sample in cut} == {False}
    assert {sample["advantage"] for sample in cut} == {None}
    assert [step["rollout/failed"] for step in metrics] == [0.0, 0.0]
    shares = [sum(s["step"] == step for s in cut) / 16 for step in (1, 2)]
    assert [step["rollout/stop/max_turns"] for step in metrics] == shares


async def test_a_turns_score_is_its_own_credit(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """+1 on each first turn and -1 on each second: their sum is the same for all, so GRPO has no
    advantage, and REINFORCE++ has."""
    each = dataclasses.replace(
        rule(tmp_path, name="turns", code=OF_TURNS), reads=Reads(per_turn=EACH)
    )
    for estimator, learns in (("grpo", False), ("reinforce_plus_plus", True)):
        folder = tmp_path / estimator
        folder.mkdir()
        metrics, samples = await trained(
            opened, folder, monkeypatch, each, algorithm__adv_estimator=estimator
        )
        assert samples[0]["scores"]["turns"]["extra"]["turns"] == [1.0, -1.0]
        assert "steps" not in samples[0]["scores"]["turns"]
        assert (metrics[0]["policy/grad_norm"] > 1e-6) == learns

"""Ways to train and to place models, each with real Ray, vLLM and torch.distributed on tiny random
models: two jobs that together switch everything on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmrl import main_export
from rmrl.trainer.checkpoint import verify
from tests.trainer.exports import (
    a_critic_that_scores,
    every_number_is_finite,
    greedy_is_that_of_the_export,
    the_policy_moved,
)
from tests.trainer.job import (
    Job,
    left_in_shared_memory,
    shared_memory,
    three_rewards,
)

pytestmark = pytest.mark.alone(forks=True)

WAYS: dict[str, dict[str, Any]] = {
    # One step off: engines with devices of their own sample the next batch, and greedy baselines,
    # while adapters train. The judge lives in a pool, the scalar model shares the policy's devices.
    # Two responses are generated at a time.
    "ahead": {
        "algorithm__adv_estimator": "remax",
        "algorithm__filter_groups__enable": True,
        "algorithm__filter_groups__max_num_gen_batches": 2,
        "algorithm__rollout_correction__rollout_is": "token",
        "actor_rollout_ref__model__lora_rank": 4,
        "actor_rollout_ref__rollout__max_num_seqs": 2,
        "actor_rollout_ref__rollout__pool": "sampling",
        "trainer__resource_pools__sampling__n_gpus_per_node": 1,
        "trainer__resource_pools__judges__n_gpus_per_node": 1,
        "reward__specs__judge__engine__pool": "judges",
        "reward__engine__max_model_len": 512,
        "trainer__max_staleness": 1,
    },
    # Two processes under the older sharding hold policy and reference; the critic, adapters and a
    # head, computes in a pool while they do.
    "critic-pool": {
        "algorithm__adv_estimator": "gae",
        "algorithm__use_kl_in_reward": True,
        "algorithm__kl_ctrl__type": "adaptive",
        "algorithm__rollout_correction__rollout_rs": "geometric",
        "algorithm__use_pf_ppo": True,
        "actor_rollout_ref__actor__strategy": "fsdp",
        "actor_rollout_ref__actor__use_kl_loss": True,
        "actor_rollout_ref__actor__policy_loss__loss_mode": "sapo",
        "actor_rollout_ref__actor__entropy_coeff": 0.001,
        "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
        "critic__checkpoint__save_contents": "[hf_model]",
        "critic__pool": "values",
        "critic__model__lora_rank": 4,
        "trainer__resource_pools__values__n_gpus_per_node": 1,
        "trainer__n_gpus_per_node": 2,
        "trainer__critic_warmup": 1,
        "trainer__save_freq": 1,
        "trainer__max_actor_ckpt_to_keep": 1,
    },
}
STEPS = {"ahead": 6, "critic-pool": 3}
MEASURED = {
    "ahead": {"train/staleness", "group/rounds", "rollout_correction/weight_mean"},
    "critic-pool": {
        "reward/kl_coef",
        "policy/ref_kl",
        "rollout_correction/rejected",
        "pf_ppo/distinct",
        "critic/value_loss",
        "critic/explained_variance",
        "policy/rollout_logprob_diff",
    },
}
"""Metrics of every step that only this way has."""


@dataclass(frozen=True)
class Played:
    """A job that has ended."""

    job: Job
    way: str
    code: int
    printed: str
    in_shared_memory: set[str]
    """Names of this job in shared memory, after its end."""

    @property
    def lines(self) -> list[dict[str, Any]]:
        return self.job.lines(self.way)

    @property
    def checkpoints(self) -> Path:
        return self.job.folder / self.way / "checkpoints"

    @property
    def last(self) -> Path:
        return self.checkpoints / f"step_{STEPS[self.way]:06d}"


Play = Callable[[str], Played]


@pytest.fixture(scope="module")
def play(
    tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path, tiny_reward_llama: Path
) -> Play:
    """Run a way's job the first time that a test needs it."""
    job = Job(
        folder=tmp_path_factory.mktemp("ways"), policy=tiny_llama, scalar=tiny_reward_llama
    ).prepare()
    rewards = {
        key.replace(".", "__"): value
        for key, value in three_rewards(tiny_llama, tiny_reward_llama).items()
    }
    played: dict[str, Played] = {}

    def run(way: str) -> Played:
        if way not in played:
            before = shared_memory()
            steps = STEPS[way]
            settings = {
                **(rewards if way == "ahead" else {}),
                **WAYS[way],
                "data__val_files": job.folder / "train.parquet",
                "trainer__val_before_train": False,
                "trainer__test_freq": steps,
                "trainer__total_training_steps": steps,
            }
            code, printed = job.run(way, **settings)
            names = left_in_shared_memory(before, of="rmrl")
            played[way] = Played(
                job=job, way=way, code=code, printed=printed, in_shared_memory=names
            )
        return played[way]

    return run


@pytest.mark.parametrize("way", WAYS)
def test_a_way_trains_publishes_and_leaves_checkpoints_that_load(play: Play, way: str) -> None:
    run = play(way)
    assert run.code == 0, run.printed[-3000:]
    assert run.in_shared_memory == set()
    assert [line["step"] for line in run.lines] == list(range(1, STEPS[way] + 1))
    for line in run.lines:
        every_number_is_finite(line)
        assert line.keys() >= MEASURED[way]
    assert verify(run.last).step == STEPS[way]
    the_policy_moved(run.last / "hf", run.job.policy)
    greedy_is_that_of_the_export(run.job, way, step=STEPS[way])


def test_sampled_ahead_each_batch_is_one_update_old(play: Play) -> None:
    run = play("ahead")
    lines, samples = run.lines, run.job.lines("ahead", "samples.jsonl")
    assert [line["train/staleness"] for line in lines] == [0, *[1] * 5]
    ages = {(row["step"], row["policy_version"]) for row in samples}
    assert ages == {(1, 0), *((step, step - 2) for step in range(2, 7))}
    assert (
        all(row["advantage"] is not None for row in samples if row["step"] == 1)
        or lines[0]["group/rounds"] > 1
    )


def test_the_pools_judge_scores_while_others_are_generated(play: Play) -> None:
    run = play("ahead")
    assert "judges" in run.printed
    warm = run.lines[1:]  # the first step loads the engine
    # Of one step alone it could be late, on a machine that stops its process for a moment.
    assert any(step["perf/streamed/judge"] > 0 for step in warm)
    for step in warm:
        assert "perf/streamed/quality" not in step
        assert step["score/judge/missing"] == 0


def test_the_pools_judge_is_loaded_once_and_never_put_away(play: Play) -> None:
    lines = play("ahead").lines
    assert sum(line.get("engine/judge/loads", 0) for line in lines) == 1
    assert (
        sum(
            line.get("engine/judge/sleeps", 0) + line.get("engine/judge/unloads", 0)
            for line in lines
        )
        == 0
    )


def test_a_critic_in_a_pool_learns_first_and_its_exports_score(play: Play, tmp_path: Path) -> None:
    run = play("critic-pool")
    assert [folder.name for folder in run.checkpoints.iterdir()] == ["step_000003"]
    assert ["policy/loss" in line for line in run.lines] == [False, True, True]
    # float32 on both sides: engines with older weights would disagree by far more
    assert all(line["policy/rollout_logprob_diff"] < 1e-3 for line in run.lines)
    a_critic_that_scores(run.last / "hf_critic")
    keys = [f"checkpoint={run.last}", f"out={tmp_path / 'critic'}", "role=critic", "dtype=float32"]
    assert main_export.main(keys) == 0
    a_critic_that_scores(tmp_path / "critic")

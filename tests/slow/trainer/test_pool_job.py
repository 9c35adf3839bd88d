"""Reward models with devices of their own, as a user sets them up: they score while the policy
still generates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.job import Job, finish, three_rewards

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def metrics(
    tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path, tiny_reward_llama: Path
) -> list[dict[str, Any]]:
    """Six steps; the judge lives in a pool, the scalar model shares the policy's devices. Two
    responses are generated at a time."""
    pool = {
        "trainer.resource_pools.judges.n_gpus_per_node": 1,
        "reward.specs.judge.engine.pool": "judges",
        "actor_rollout_ref.rollout.max_num_seqs": 2,
        "reward.engine.max_model_len": 512,
    }
    rewards = three_rewards(tiny_llama, tiny_reward_llama)
    job = Job(
        folder=tmp_path_factory.mktemp("pool"),
        policy=tiny_llama,
        scalar=tiny_reward_llama,
        overrides={**rewards, **pool},
    ).prepare()
    code, printed = finish(job.start("run", trainer__total_training_steps=6))
    assert code == 0, printed
    assert "judges" in printed
    lines = (job.folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_the_pools_judge_scores_while_others_are_generated(metrics: list[dict[str, Any]]) -> None:
    warm = metrics[1:]  # the first step loads the engine
    # Of one step alone it could be late, on a machine that stops its process for a moment.
    assert max(step["perf/streamed/judge"] for step in warm) > 0.3
    for step in warm:
        assert "perf/streamed/quality" not in step
        assert step["score/judge/missing"] == 0


def test_it_is_loaded_once_and_never_put_away(metrics: list[dict[str, Any]]) -> None:
    assert sum(m.get("engine/judge/loads", 0) for m in metrics) == 1
    assert (
        sum(m.get("engine/judge/sleeps", 0) + m.get("engine/judge/unloads", 0) for m in metrics)
        == 0
    )

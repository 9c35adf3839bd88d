"""A user's own part works from a file outside the package, with no other edit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema import Config
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.check_algorithm import algorithm_problems, needs_critic
from tests.trainer.fake_run import fake_run, records, train_and_close

PARTS = "tests.contracts.toy_parts"


def trained(folder: Path, **changed: Any) -> list[dict[str, Any]]:
    """Metrics of two steps of a whole run of fakes."""
    run = fake_run(folder, total_steps=2, **changed)
    asyncio.run(train_and_close(run))
    return records(run.out_dir / "metrics.jsonl")


def test_an_estimator_and_a_loss_train(tmp_path: Path):
    lines = trained(
        tmp_path,
        algorithm__adv_estimator=f"{PARTS}:above_the_worst",
        actor_rollout_ref__actor__policy_loss__loss_mode=f"{PARTS}:likelihood",
    )
    assert [line["policy/toy_tokens"] for line in lines] == [1.0, 1.0]  # a mean over tokens
    assert all(line["policy/grad_norm"] > 0 for line in lines)


def test_an_estimator_that_states_values_gets_a_critic(tmp_path: Path):
    lines = trained(tmp_path, algorithm__adv_estimator=f"{PARTS}:reward_minus_value")
    assert all("critic/value_loss" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "changed", "part_of_the_problem"),
    [
        ("above_the_worst", {"n": 1}, "rollout.n=1"),
        ("above_the_worst", {"kl": True}, "cannot take algorithm.use_kl_in_reward=True"),
        ("above_the_worst", {"critic": True}, "reads no values"),
        ("reward_minus_value", {"critic": False}, "needs a critic"),
    ],
)
def test_what_an_estimator_states_is_checked_before_the_run(
    name: str, changed: dict[str, Any], part_of_the_problem: str
):
    config = Config()
    config.algorithm.adv_estimator = f"{PARTS}:{name}"
    config.actor_rollout_ref.rollout.n = changed.get("n", 4)
    config.algorithm.use_kl_in_reward = changed.get("kl", False)
    config.critic.enable = changed.get("critic")
    specs: list[RewardSpec] = []
    problems = list(algorithm_problems(config, specs))
    assert len(problems) == 1
    assert part_of_the_problem in problems[0]


@pytest.mark.parametrize("enable", [True, False, None])
def test_a_plain_function_has_the_defaults_and_a_critic_on_request(enable: bool | None):
    config = Config()
    config.algorithm.adv_estimator = f"{PARTS}:plain_reward"
    config.actor_rollout_ref.rollout.n = 1
    config.critic.enable = enable
    assert list(algorithm_problems(config, [])) == []
    assert needs_critic(config) is bool(enable)

"""A scorer without a trainer: rules start no Ray, engines get what they asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rmrl.assemble.build import slots, standalone_scorer
from rmrl.config.schema import RewardConfig, ScoreTrainerConfig
from rmrl.errors import ConfigError
from rmrl.rewards.residency import Budget
from tests.rewards.parts import rows, rule


async def test_rules_alone_start_no_ray(tmp_path: Path) -> None:
    settings = RewardConfig(models=["length"], rule_workers=1)
    specs = [rule(tmp_path, "length", "return len(solution_str)")]
    async with standalone_scorer(
        specs,
        settings,
        engines=[],
        budget=Budget({}),
        device="cpu",
        trainer=ScoreTrainerConfig(),
        ray_init={},
    ) as scorer:
        batch = await scorer.score(rows("ab", "abcd"))
    assert batch.rewards_B.tolist() == [2.0, 4.0]
    ray = sys.modules.get("ray")
    assert ray is None or not ray.is_initialized()


def test_seats_of_the_policy_and_of_the_pools() -> None:
    assert slots(4, {}) == 4
    assert (
        slots(4, {"judges": {"n_gpus_per_node": 2, "nnodes": 3}, "scalars": {"n_gpus_per_node": 1}})
        == 4 + 6 + 1
    )
    with pytest.raises(ConfigError, match=r"trainer\.resource_pools\.judges"):
        slots(1, {"judges": {"gpus": 2}})

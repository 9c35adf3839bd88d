"""Stock command lines with paths, models and counts changed, nothing else: two steps of each."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.check import config_problems
from rmrl.config.load import compose_config
from rmrl.config.schema import Config
from tests.config.reference_lines import changed, typed
from tests.config.stock_lines import BASE, STOCK
from tests.support import fakes


def line(name: str, **paths: object) -> list[str]:
    return typed(BASE + STOCK[name], **{"TRAIN": "train.parquet", "POLICY": "policy", **paths})


def composed(name: str) -> Config:
    """At the size of a run of fakes: 4 prompts a step, two optimizer steps, groups as they are."""
    counts: dict[str, Any] = {
        "data__train_batch_size": 4,
        "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
    }
    if STOCK[name].find("gen_batch_size") >= 0:
        counts["data__gen_batch_size"] = 6
    return compose_config(changed(line(name), **counts))


@pytest.mark.parametrize("name", STOCK)
def test_a_stock_line_trains_two_steps_of_fakes(name: str, tmp_path: Path):
    from tests.trainer.fake_run import FakeParts, fake_run, records, train_and_close

    config = composed(name)
    config.actor_rollout_ref.actor.strategy = fakes.BACKEND
    run = fake_run(
        tmp_path,
        total_steps=2,
        parts=FakeParts(),
        algorithm=config.algorithm,
        critic=config.critic,
        actor_rollout_ref__actor=config.actor_rollout_ref.actor,
        actor_rollout_ref__rollout__n=config.actor_rollout_ref.rollout.n,
        data__gen_batch_size=config.data.gen_batch_size,
    )
    assert config_problems(run.config) == []
    asyncio.run(train_and_close(run))
    lines = records(run.out_dir / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2]
    for metrics in lines:
        assert [
            key
            for key, value in metrics.items()
            if isinstance(value, float) and not math.isfinite(value)
        ] == []
    assert ("critic/value_loss" in lines[0]) == ("gae" in STOCK[name])
    assert ("group/rounds" in lines[0]) == ("filter_groups" in STOCK[name])

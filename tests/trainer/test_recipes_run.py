"""Every shipped recipe runs: its keys in a whole run of fakes, whose learner uses the real
estimators, losses, KL forms and filters."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmrl.algorithms import estimator_named
from rmrl.algorithms.descriptors import described_estimator
from rmrl.config.check import config_problems
from rmrl.config.load import compose_config, shipped
from rmrl.config.schema import Config
from rmrl.registry import Registry
from tests.support import fakes
from tests.trainer.fake_run import FakeParts, fake_run, records, train_and_close

RECIPES = sorted(file.stem for file in (shipped("configs") / "recipe").glob("*.yaml"))
USES = {
    "cispo": ("grpo", "cispo"),
    "clip_cov": ("grpo", "clip_cov"),
    "dapo": ("grpo", "vanilla"),
    "dppo_kl": ("grpo", "dppo_kl"),
    "dppo_tv": ("grpo", "dppo_tv"),
    "dr_grpo": ("grpo", "vanilla"),
    "dro": ("grpo", "dro"),
    "gdpo": ("gdpo", "vanilla"),
    "gmpo": ("grpo", "geo_mean"),
    "gpg": ("gpg", "gpg"),
    "grpo": ("grpo", "vanilla"),
    "grpo_passk": ("grpo_passk", "vanilla"),
    "gspo": ("grpo", "gspo"),
    "kl_cov": ("grpo", "kl_cov"),
    "opo": ("opo", "vanilla"),
    "pf_ppo": ("gae", "vanilla"),
    "ppo": ("gae", "vanilla"),
    "reinforce_plus_plus": ("reinforce_plus_plus", "vanilla"),
    "reinforce_plus_plus_baseline": ("reinforce_plus_plus_baseline", "vanilla"),
    "remax": ("remax", "vanilla"),
    "rloo": ("rloo", "vanilla"),
    "sapo": ("grpo", "sapo"),
    "icepop": ("gae", "vanilla"),  # beside whatever else was asked for, as tis
    "tis": ("gae", "vanilla"),  # a correction of whatever else was asked for; here of the defaults
}
"""The estimator and the loss that a recipe runs on; one that is not listed runs on what its keys
name."""
FURTHER = {
    "dapo": ("group/rounds", "group/chosen_fraction"),
    "grpo": ("policy/ref_kl",),
    "reinforce_plus_plus": ("reward/kl_penalty",),
    "reinforce_plus_plus_baseline": ("policy/ref_kl",),
    "clip_cov": ("policy/covariance_fraction",),
    "kl_cov": ("policy/covariance_fraction",),
    "pf_ppo": ("pf_ppo/distinct", "critic/value_loss"),
    "ppo": ("critic/value_loss",),
    "icepop": ("rollout_correction/weight_mean",),
    "optimal_token_baseline": ("otb/energy",),
    "tis": ("rollout_correction/weight_mean",),
}
"""Metrics that only runs with the recipe's other keys have."""
STEPS = 2
PROMPTS = 4


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """(table, name) of each estimator and loss that was looked up and then called."""
    seen: set[tuple[str, str]] = set()
    found = Registry.__getitem__

    def look_up(table: Registry[Any], name: str) -> Any:
        part = found(table, name)
        key = (table.what.rpartition(".")[2], name)
        if key[0] == "adv_estimator":
            return replace(described_estimator(part), fn=noted(part, key))
        return noted(part, key) if key[0] == "loss_mode" else part

    def noted(part: Callable[..., Any], key: tuple[str, str]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen.add(key)
            return part(*args, **kwargs)

        return call

    monkeypatch.setattr(Registry, "__getitem__", look_up)
    return seen


def small(name: str) -> Config:
    """The recipe at small sizes: its groups and its number of updates a step stay."""
    config = compose_config([f"+recipe={name}", f"data.train_batch_size={PROMPTS}"])
    actor = config.actor_rollout_ref.actor
    actor.strategy, actor.optim.lr, config.critic.optim.lr = fakes.BACKEND, 0.5, 0.05
    actor.ppo_mini_batch_size = PROMPTS if actor.ppo_mini_batch_size == PROMPTS else PROMPTS // 2
    return config


def test_the_table_names_recipes_alone():
    assert set(USES) <= set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_trains_with_what_it_names(
    name: str, called: set[tuple[str, str]], tmp_path: Path
):
    config = small(name)
    parts = FakeParts()
    run = fake_run(
        tmp_path,
        total_steps=STEPS,
        parts=parts,
        algorithm=config.algorithm,
        critic=config.critic,
        actor_rollout_ref__actor=config.actor_rollout_ref.actor,
        actor_rollout_ref__rollout__n=config.actor_rollout_ref.rollout.n,
    )
    assert config_problems(run.config) == []
    asyncio.run(train_and_close(run))
    named = (config.algorithm.adv_estimator, config.actor_rollout_ref.actor.policy_loss.loss_mode)
    estimator, loss = USES.get(name, named)
    assert called == {("adv_estimator", estimator), ("loss_mode", loss)}
    lines = records(run.out_dir / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert [
            key
            for key, value in line.items()
            if isinstance(value, float) and not math.isfinite(value)
        ] == []
        assert line["policy/grad_norm"] > 0  # rewards differ, so every recipe moves the policy
        assert [key for key in FURTHER.get(name, ()) if key not in line] == []
        assert ("critic/value_loss" in line) == estimator_named(estimator).values
    assert (run.out_dir / "checkpoints/step_000002/manifest.json").is_file()

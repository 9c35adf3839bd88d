"""The shipped recipes: each composes without a problem, and every algorithm has one."""

from __future__ import annotations

import pytest

from rmrl.algorithms import ADVANTAGES, LOSSES, estimator_named
from rmrl.config.check import config_problems
from rmrl.config.load import compose_config, normalise, shipped
from rmrl.config.schema import Config, ScoreConfig
from rmrl.errors import ConfigError

RECIPES = sorted(file.stem for file in (shipped("configs") / "recipe").glob("*.yaml"))
GIVEN = [
    "data.train_files=train.parquet",
    "actor_rollout_ref.model.path=policy",
    "reward.models=[gsm8k]",
]


def composed(*overrides: str) -> Config:
    return compose_config([*overrides, *GIVEN])


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_composes_and_has_no_problem(name: str):
    from rmrl.trainer.check_strategy import strategy_problems  # imports torch

    config = composed(f"+recipe={name}")
    assert config_problems(config) == []
    assert list(strategy_problems(config, device="cuda")) == []
    assert name == "ppo" or config != composed(), "a recipe that changes nothing"
    estimator = config.algorithm.adv_estimator
    assert estimator in ADVANTAGES
    assert config.actor_rollout_ref.actor.policy_loss.loss_mode in LOSSES
    assert not estimator_named(estimator).group or config.actor_rollout_ref.rollout.n >= 2


def test_every_algorithm_has_a_recipe():
    configs = [composed(f"+recipe={name}") for name in RECIPES]
    assert {c.algorithm.adv_estimator for c in configs} == set(ADVANTAGES)
    assert {c.actor_rollout_ref.actor.policy_loss.loss_mode for c in configs} | {
        "reinforce",
        "gmpo",
    } == set(LOSSES)


def test_the_recipes_say_what_their_names_do():
    dapo = composed("+recipe=dapo")
    actor = dapo.actor_rollout_ref.actor
    assert (dapo.algorithm.adv_estimator, dapo.algorithm.filter_groups.enable) == ("grpo", True)
    assert actor.clip_ratio_low == 0.2
    assert actor.clip_ratio_high == 0.28
    assert actor.loss_agg_mode == "token-mean"
    assert composed("+recipe=gspo").actor_rollout_ref.actor.clip_ratio_low == 3e-4
    assert estimator_named(composed("+recipe=ppo").algorithm.adv_estimator).values
    assert composed("+recipe=dr_grpo").algorithm.norm_adv_by_std_in_grpo is False


def test_what_stands_on_the_command_line_wins():
    config = composed(
        "actor_rollout_ref.rollout.n=5", "+recipe=dapo", "algorithm.filter_groups.enable=false"
    )
    assert (config.actor_rollout_ref.rollout.n, config.algorithm.filter_groups.enable) == (5, False)
    assert config.actor_rollout_ref.actor.clip_ratio_high == 0.28


def test_one_recipe_builds_on_another_and_several_go_together():
    pf_ppo = composed("+recipe=pf_ppo")
    assert (pf_ppo.algorithm.adv_estimator, pf_ppo.algorithm.use_pf_ppo) == ("gae", True)
    both = composed("+recipe=[dapo,tis]")
    assert both.algorithm.filter_groups.enable
    assert both.algorithm.rollout_correction.rollout_is == "token"


def test_a_recipe_may_follow_another_key():
    assert (
        composed(
            "+recipe=gpg", "data.train_batch_size=64"
        ).actor_rollout_ref.actor.ppo_mini_batch_size
        == 64
    )


def test_the_plus_may_be_left_out():
    assert normalise(["recipe=dapo", "+recipe=dapo"]) == ["+recipe=dapo", "+recipe=dapo"]


@pytest.mark.parametrize("asked", ["dpo", "[dapo,tiss]"])
def test_an_unknown_recipe_names_the_known_ones(asked: str):
    named = rf"recipe={asked.replace('[', '.')}: .* did you mean '\w+'.* cispo, clip_cov, dapo"
    with pytest.raises(ConfigError, match=named):
        composed(f"+recipe={asked}")


def test_scoring_has_no_recipes():
    with pytest.raises(ConfigError, match="no key 'recipe'"):
        compose_config(["+recipe=dapo"], ScoreConfig)

"""Every problem the check can find: what was seen, what is needed, what to type."""

from __future__ import annotations

import pytest

from rmrl.config.check import config_problems
from rmrl.config.plain_checks import keys_of, look_up
from rmrl.config.schema import Config, ScoreConfig
from rmrl.config.schema.fields import rule_of
from rmrl.config.typed import config_of
from rmrl.errors import ConfigError

RULES = {key: rule for key, field in keys_of(Config()) if (rule := rule_of(field)) is not None}
CHOICES = {key: rule.choices for key, rule in RULES.items() if rule.choices}
POSITIVE = [key for key, rule in RULES.items() if rule.text == "> 0"]
NOT_NEGATIVE = [key for key, rule in RULES.items() if rule.text == ">= 0"]
FRACTIONS = [key for key, rule in RULES.items() if rule.text == "> 0, <= 1"]
SHARES = [key for key, rule in RULES.items() if rule.text == "0..1"]

BASE = {
    "trainer.n_gpus_per_node": 8,
    "data.train_files": "train.parquet",
    "actor_rollout_ref.model.path": "policy",
    "actor_rollout_ref.rollout.n": 4,
    "reward.models": ["a", "b"],
}


def config_with(**changes: object) -> Config:
    config = Config()
    for key, value in {**BASE, **changes}.items():
        section, _, name = key.rpartition(".")
        setattr(look_up(config, section), name, value)
    return config


def test_a_sound_configuration_has_no_problems():
    assert config_problems(config_with()) == []


@pytest.mark.parametrize(
    ("changes", "seen", "typed"),
    [
        ({"data.train_files": None}, "data.train_files is empty", "data.train_files=data/gsm8k/train.parquet"),
        ({"trainer.val_only": True}, "trainer.val_only=True without data.val_files", "give the rows"),
        ({"trainer.test_freq": 5}, "trainer.test_freq=5 without data.val_files", "test_freq=-1"),
        ({"actor_rollout_ref.model.path": None}, "actor_rollout_ref.model.path is empty", "Qwen/Qwen2.5-0.5B-Instruct"),
        ({"actor_rollout_ref.hybrid_engine": False}, "hybrid_engine=False", "actor_rollout_ref.rollout.pool=rollout"),
        ({"trainer.max_staleness": 1}, "trainer.max_staleness=1", "actor_rollout_ref.rollout.pool=rollout"),
        ({"actor_rollout_ref.rollout.pool": "fast"}, "rollout.pool=fast: no such pool", "trainer.resource_pools.fast.n_gpus_per_node="),
        ({"critic.pool": "fast"}, "critic.pool=fast: no such pool (known: none)", "trainer.resource_pools.fast"),
        ({"critic.ppo_mini_batch_size": 4000}, "critic.ppo_mini_batch_size=4000 is larger", "at most 1024"),
        ({"critic.use_dynamic_bsz": False}, "critic.use_dynamic_bsz=False needs", "critic.ppo_micro_batch_size_per_gpu=<"),
        ({"algorithm.lam": 1.5}, "algorithm.lam=1.5 lies outside 0..1", "algorithm.lam=1.0"),
        ({"data.gen_batch_size": 8}, "data.gen_batch_size=8 is the number of prompts in a round", "filter_groups.enable=True"),
        (
            {"algorithm.rollout_correction.bypass_mode": True, "algorithm.rollout_correction.rollout_rs": "token"},
            "bypass_mode=True with rollout_rs=token",
            "leave one of the two out",
        ),
        (
            {"algorithm.rollout_correction.rollout_is_threshold_lower": 3.0},
            "rollout_is_threshold_lower=3 is above rollout_is_threshold=2",
            "a smaller lower bound",
        ),
        (
            {"actor_rollout_ref.actor.policy_loss.loss_mode": "fipo", "actor_rollout_ref.actor.policy_loss.fipo_weight_low": 2.0},
            "fipo_weight_low=2 is above fipo_weight_high=1.2",
            "fipo_weight_low=1.0",
        ),
        (
            {"actor_rollout_ref.actor.ratio_weighted_kl": True},
            "ratio_weighted_kl=True without use_kl_loss",
            "use_kl_loss=True",
        ),
        ({"trainer.resume_mode": "resume_path"}, "resume_mode=resume_path", "trainer.resume_from_path=<folder"),
        ({"actor_rollout_ref.rollout.temperature": 0.0}, "temperature=0 samples the same", "above 0"),
        ({"actor_rollout_ref.rollout.max_model_len": 1023}, "max_model_len=1023 is less than", "at least 1024"),
        ({"actor_rollout_ref.actor.ppo_mini_batch_size": 2000}, "ppo_mini_batch_size=2000 is larger", "at most 1024"),
        ({"actor_rollout_ref.actor.use_dynamic_bsz": False}, "use_dynamic_bsz=False needs", "ppo_micro_batch_size_per_gpu=<"),
        ({"trainer.profile_steps": [0, 2]}, "trainer.profile_steps=[0, 2]", "trainer.profile_steps=[3]"),
        ({"reward.models": []}, "reward.models is empty", "reward.models=[gsm8k]"),
        ({"reward.models": ["a", "a"]}, "names one reward twice (a, a)", "the sum of its weights"),
        ({"reward.weights": [1.0]}, "reward.weights has 1 value for 2 models (a, b)", "reward.weights=[0.3,0.5]"),
        ({"reward.weights": [1.0, float("nan")]}, "reward.weights=[1.0, nan]", "finite"),
        ({"reward.rule_workers": 0}, "reward.rule_workers=0", "1 or more"),
        ({"reward.max_missing": float("nan")}, "reward.max_missing=nan", "must not be negative"),
        ({"trainer.max_actor_ckpt_to_keep": 0}, "trainer.max_actor_ckpt_to_keep=0", "must be greater than 0"),
        ({"critic.checkpoint.save_contents": ["hf_modle"]}, "critic.checkpoint.save_contents: no part named 'hf_modle'", "'hf_model'?"),
        (
            {"algorithm.rollout_correction.rollout_rs": "token", "algorithm.rollout_correction.rollout_rs_threshold": 0.5},
            "rollout_rs_threshold_lower=2 (1 / rollout_rs_threshold) is above rollout_rs_threshold=0.5",
            "rollout_rs_threshold=2.0",
        ),
        (
            {"algorithm.rollout_correction.rollout_rs": "token", "algorithm.rollout_correction.rollout_rs_threshold_lower": 3.0},
            "rollout_rs_threshold_lower=3 is above rollout_rs_threshold=2",
            "everything would be rejected",
        ),
        (
            {"algorithm.kl_ctrl.type": "adaptive", "algorithm.kl_ctrl.kl_coef": 0.0},
            "algorithm.kl_ctrl.kl_coef=0.0: type=adaptive needs a value above 0",
            "kl_coef=0.001",
        ),
        ({"algorithm.pf_ppo.weight_pow": -1.0}, "algorithm.pf_ppo.weight_pow=-1.0", "must not be negative"),
        ({"actor_rollout_ref.actor.optim.lr": -1.0}, "actor_rollout_ref.actor.optim.lr=-1.0", "must not be negative"),
    ],
)  # fmt: skip
def test_one_problem_one_sentence(changes: dict[str, object], seen: str, typed: str):
    (problem,) = config_problems(config_with(**changes))
    assert seen in problem
    assert typed in problem


@pytest.mark.parametrize("key", CHOICES)
def test_a_value_that_is_no_choice_names_the_choices(key: str):
    problems = [
        p
        for p in config_problems(config_with(**{key: "nonsense"}))
        if p.startswith(f"{key}='nonsense': not a choice")
    ]
    assert len(problems) == 1
    assert all(choice in problems[0] for choice in CHOICES[key] if choice is not None)


@pytest.mark.parametrize("value", [0, -1, float("nan")])
@pytest.mark.parametrize("key", POSITIVE)
def test_numbers_that_must_be_above_zero(key: str, value: float):
    assert f"{key}={value}: must be greater than 0" in config_problems(config_with(**{key: value}))


@pytest.mark.parametrize("value", [-1, float("nan")])
@pytest.mark.parametrize("key", NOT_NEGATIVE)
def test_numbers_that_must_not_be_negative(key: str, value: float):
    assert f"{key}={value}: must not be negative" in config_problems(config_with(**{key: value}))


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
@pytest.mark.parametrize("key", SHARES)
def test_shares_lie_between_0_and_1(key: str, value: float):
    problems = config_problems(config_with(**{key: value}))
    default = look_up(Config(), key)
    example = 1.0 if default is None else default
    assert f"{key}={value} lies outside 0..1; use {key}={example}" in problems


@pytest.mark.parametrize("value", [-0.1, 0, 1.1, float("nan")])
@pytest.mark.parametrize("key", FRACTIONS)
def test_fractions_lie_above_0(key: str, value: float):
    problems = config_problems(config_with(**{key: value}))
    assert f"{key}={value}: give a number above 0 and at most 1" in problems


@pytest.mark.parametrize("value", [0, -2])
@pytest.mark.parametrize("key", ["trainer.n_gpus_per_node", "data.train_max_samples"])
def test_a_count_or_all(key: str, value: int):
    assert f"{key}={value}: give at least 1, or -1 for all" in config_problems(
        config_with(**{key: value})
    )


@pytest.mark.parametrize("value", [[], [0.9], [0.9, 1.0], [0.9, 0.9, 0.9], [-0.1, 0.9]])
def test_two_rates_for_adam(value: list[float]):
    key = "actor_rollout_ref.actor.optim.betas"
    (problem,) = config_problems(config_with(**{key: value}))
    assert problem == f"{key}={value}: give 2 numbers from 0 to below 1, e.g. {key}=[0.9,0.999]"


@pytest.mark.parametrize(
    ("key", "value"), [("data.val_max_samples", -2), ("trainer.save_freq", -2)]
)
def test_minus_one_is_the_least_where_it_has_a_meaning(key: str, value: int):
    assert f"{key}={value}: give at least -1" in config_problems(config_with(**{key: value}))


def test_the_dual_clip_needs_more_than_one():
    key = "actor_rollout_ref.actor.clip_ratio_c"
    assert f"{key}=1.0: must be greater than 1" in config_problems(config_with(**{key: 1.0}))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_every_number_is_finite(value: float):
    for key, field in keys_of(Config()):
        if field.type in ("float", "float | None"):
            problems = config_problems(config_with(**{key: value}))
            assert any(problem.startswith(f"{key}={value}") for problem in problems), key


@pytest.mark.parametrize("each", [{"judge": {"path": "x"}}, ["a"]])
def test_a_list_holds_plain_values(each: object):
    with pytest.raises(ConfigError, match=r"reward\.models: saw .* give the names of rewards"):
        config_of({"reward": {"models": ["a", each]}}, ScoreConfig)
    with pytest.raises(ConfigError, match=r"reward\.gates: saw .* give plain values"):
        config_of({"reward": {"gates": [each]}}, ScoreConfig)


def test_every_default_satisfies_its_own_rule():
    config = Config()
    for key, rule in RULES.items():
        assert rule.problem(key, look_up(config, key)) is None


def test_keys_of_every_section_have_rules():
    assert CHOICES["critic.megatron.dtype"] == ("bfloat16", "float32", None)
    assert CHOICES["actor_rollout_ref.actor.megatron.dtype"] == ("bfloat16", "float32")
    assert {"data.train_batch_size", "critic.grad_clip", "reward.cache.max_gb"} <= set(POSITIVE)
    assert {"critic.optim.lr", "trainer.max_staleness"} <= set(NOT_NEGATIVE)
    assert {"algorithm.gamma", "algorithm.lam", "algorithm.lam_critic"} <= set(SHARES)


def test_choices_name_the_nearest():
    (problem,) = config_problems(config_with(**{"data.truncation": "lefty"}))
    assert "did you mean 'left'?" in problem
    dtype = {"actor_rollout_ref.actor.megatron.dtype": "bfloat"}
    (problem,) = config_problems(config_with(**dtype))
    assert problem.startswith("actor_rollout_ref.actor.megatron.dtype='bfloat': not a choice")
    assert "did you mean 'bfloat16'?" in problem


def test_all_problems_at_once():
    assert (
        len(
            config_problems(
                config_with(
                    **{"reward.models": [], "data.train_files": None, "trainer.device": "tpu"}
                )
            )
        )
        == 3
    )

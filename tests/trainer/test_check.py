"""What an estimator needs and refuses, and what the critic takes over from the actor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmrl.config.schema import Config, MegatronConfig
from rmrl.errors import Problems
from rmrl.rewards.rules.dropin import FunctionSource
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.check import (
    _advice,
    _package_problems,
    _part_problems,
    _settings_problems,
    _settle,
    _vocabulary_problems,
)
from rmrl.trainer.check_algorithm import (
    _estimator_problems,
    _group_problems,
    critic_settings,
    needs_critic,
)


def config(estimator: str, *, n: int = 4) -> Config:
    made = Config()
    made.actor_rollout_ref.model.path = "policy"
    made.algorithm.adv_estimator, made.actor_rollout_ref.rollout.n = estimator, n
    return made


def test_the_default_estimator_trains_a_critic() -> None:
    assert needs_critic(Config())
    assert not needs_critic(config("grpo"))


def test_a_critic_may_be_asked_for_and_a_run_that_validates_has_none() -> None:
    made = config("grpo")
    made.critic.enable = True
    assert needs_critic(made)
    made.trainer.val_only = True
    assert not needs_critic(made)


def test_the_critic_takes_over_what_is_not_said() -> None:
    made = config("gae")
    made.actor_rollout_ref.actor.ppo_mini_batch_size, made.actor_rollout_ref.actor.ppo_epochs = (
        64,
        3,
    )
    made.actor_rollout_ref.model.trust_remote_code = True
    critic = critic_settings(made)
    assert (critic.model.path, critic.strategy, critic.ppo_mini_batch_size, critic.ppo_epochs) == (
        "policy",
        "fsdp2",
        64,
        3,
    )
    assert critic.model.trust_remote_code
    assert critic.optim.lr == 1e-5


def test_the_critic_reads_with_the_policys_tokenizer() -> None:
    made = config("gae")
    made.critic.model.path = "critic"
    assert critic_settings(made).model.tokenizer_path == "policy"
    made.actor_rollout_ref.model.tokenizer_path = "tokens"
    assert critic_settings(made).model.tokenizer_path == "tokens"
    made.critic.model.tokenizer_path = "its own"
    assert critic_settings(made).model.tokenizer_path == "its own"


def test_a_cpu_trains_in_one_process_where_no_number_is_typed() -> None:
    made = config("grpo")
    made.trainer.device = "cpu"
    made.trainer.n_gpus_per_node = -1
    assert _settle(made, Problems()).kind == "cpu"
    assert made.trainer.n_gpus_per_node == 1


def test_a_server_needs_no_package_of_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmrl.trainer.check.package_problem", lambda key, name, *_, **__: name)
    made = config("grpo")
    made.trainer.logger = ["jsonl"]
    assert list(_package_problems(made, "cpu")) == ["jsonl", "vllm"]
    made.actor_rollout_ref.rollout.engine_kwargs = {"vllm": {"base_url": "http://127.0.0.1:8000"}}
    assert list(_package_problems(made, "cpu")) == ["jsonl"]
    made.actor_rollout_ref.rollout.name = "sglang"
    assert list(_package_problems(made, "cpu")) == ["jsonl", "sglang"]


def test_the_critic_has_the_actors_layout_where_it_names_none() -> None:
    made = config("gae")
    made.actor_rollout_ref.actor.megatron.tensor_model_parallel_size = 4
    made.actor_rollout_ref.actor.megatron.optimizer_offload = True
    made.critic.megatron.optimizer_offload = False
    assert critic_settings(made).megatron == MegatronConfig(tensor_model_parallel_size=4)


def test_batch_invariant_sampling_is_refused_where_no_engine_has_it() -> None:
    made = config("gae")
    made.actor_rollout_ref.rollout.batch_invariant = True
    refused = (
        "actor_rollout_ref.rollout.batch_invariant=True: only vllm on NVIDIA GPUs samples so, and"
        " this run samples with vllm on cpu"
    )
    assert any(problem.startswith(refused) for problem in _settings_problems(made, "cpu"))
    assert not any("batch_invariant" in problem for problem in _settings_problems(made, "cuda"))


def test_a_strategy_that_is_not_there_is_named_by_its_key() -> None:
    made = config("gae")
    made.critic.strategy = "megatorn"
    problems = _part_problems(made, "cpu")
    assert any(
        problem.startswith("critic.strategy: nothing named 'megatorn'; did you mean 'megatron'?")
        for problem in problems
    ), problems


def test_what_is_said_of_the_critic_stays() -> None:
    made = config("gae")
    made.critic.model.path, made.critic.ppo_epochs, made.critic.strategy = "values", 2, "fsdp"
    critic = critic_settings(made)
    assert (critic.model.path, critic.ppo_epochs, critic.strategy) == ("values", 2, "fsdp")


@pytest.mark.parametrize(
    ("estimator", "n", "problems"),
    [("grpo", 1, 1), ("grpo", 2, 0), ("gae", 1, 0), ("remax", 1, 0), ("rloo", 1, 1)],
)
def test_group_estimators_need_several_responses(estimator: str, n: int, problems: int) -> None:
    found = list(_estimator_problems(config(estimator, n=n), []))
    assert len(found) == problems
    assert all(
        f"rollout.n=1 with algorithm.adv_estimator={estimator}" in problem and "n >= 2" in problem
        for problem in found
    )


def test_dynamic_sampling_needs_groups() -> None:
    made = config("gae", n=1)
    made.algorithm.filter_groups.enable = True
    (problem,) = _estimator_problems(made, [])
    assert "no group has contrast" in problem


def test_the_best_of_one_response_has_no_rival() -> None:
    made = config("grpo_passk")
    made.algorithm.passk_k = 1
    (problem,) = _estimator_problems(made, [])
    assert "algorithm.passk_k=1" in problem


def test_an_estimator_without_its_critic() -> None:
    made = config("gae")
    made.critic.enable = False
    (problem,) = _estimator_problems(made, [])
    assert "adv_estimator=gae needs a critic and critic.enable=False" in problem


def test_a_critic_that_nobody_asks_is_refused() -> None:
    made = config("grpo")
    made.critic.enable = True
    (problem,) = _estimator_problems(made, [])
    assert "critic.enable=True with algorithm.adv_estimator=grpo, which reads no values" in problem
    made.algorithm.adv_estimator = "a_package_of_users:advantage"  # may read them
    assert not list(_estimator_problems(made, []))


def test_energies_come_with_the_log_probabilities_of_training() -> None:
    made = config("optimal_token_baseline")
    assert not list(_estimator_problems(made, []))
    made.algorithm.rollout_correction.bypass_mode = True
    (problem,) = _estimator_problems(made, [])
    assert problem.endswith("set bypass_mode=False, or use adv_estimator=opo")
    made.algorithm.adv_estimator = "opo"
    assert not list(_estimator_problems(made, []))


def test_only_a_critic_warms_up() -> None:
    made = config("grpo")
    made.trainer.critic_warmup = 5
    (problem,) = _estimator_problems(made, [])
    assert "trainer.critic_warmup=5 without a critic" in problem
    made.algorithm.adv_estimator = "gae"
    assert not list(_estimator_problems(made, []))


@pytest.mark.parametrize(
    ("metric", "problems"),
    [(None, 0), ("reward", 0), ("helpful", 0), ("inner", 1), ("helpfull", 1)],
)
def test_dynamic_sampling_looks_at_a_reward_that_is_there(
    metric: str | None, problems: int
) -> None:
    made = config("grpo")
    made.algorithm.filter_groups.enable, made.algorithm.filter_groups.metric = True, metric
    specs = [
        RewardSpec(name="helpful", kind="rule", weight=1.0),
        RewardSpec(name="inner", kind="rule", weight=1.0, part_of="helpful"),
    ]
    found = list(_group_problems(made, specs))
    assert len(found) == problems
    assert all(
        f"algorithm.filter_groups.metric={metric}: no reward of that name" in problem
        for problem in found
    )


RELATIVE = [
    {"kind": "rank"},
    {"kind": "standardize", "by": "group"},
    {"kind": "standardize", "by": "batch"},
]


@pytest.mark.parametrize("transform", RELATIVE)
def test_a_greedy_response_scored_alone_is_no_baseline_for_scores_that_compare(
    transform: dict[str, str],
) -> None:
    """Ranked or standardized by itself it scores 0, whatever it is worth."""
    compared = RewardSpec(name="helpful", kind="rule", weight=1.0, transforms=(transform,))
    (problem,) = _group_problems(config("remax"), [compared])
    assert (
        "reward 'helpful' compares responses with each other, and algorithm.adv_estimator=remax"
        " scores the greedy one alone" in problem
    )
    assert not list(_group_problems(config("rloo"), [compared]))


def test_a_baseline_may_be_standardized_by_what_was_seen_before() -> None:
    running = RewardSpec(
        name="helpful",
        kind="rule",
        weight=1.0,
        transforms=({"kind": "standardize", "by": "running"},),
    )
    assert not list(_group_problems(config("remax", n=1), [running]))


def test_estimators_of_whole_responses_refuse_token_rewards() -> None:
    steps = RewardSpec(
        name="steps", kind="process", weight=1.0, function=FunctionSource("steps.py")
    )
    (problem,) = _estimator_problems(config("gdpo"), [steps])
    assert "cannot take the step scores of reward 'steps'" in problem
    made = config("grpo_passk")
    made.algorithm.use_kl_in_reward = True
    (problem,) = _estimator_problems(made, [])
    assert "cannot take algorithm.use_kl_in_reward=True" in problem
    assert not list(_estimator_problems(config("grpo"), [steps]))


def test_greedy_validation_of_several_responses_is_pointed_out() -> None:
    made = config("grpo")
    made.data.val_files, made.actor_rollout_ref.rollout.val_kwargs.n = "val.parquet", 4
    (advice,) = _advice(made, "cpu")
    assert "val_kwargs.do_sample=True" in advice
    made.actor_rollout_ref.rollout.val_kwargs.do_sample = True
    made.actor_rollout_ref.rollout.val_kwargs.temperature = 1.0
    assert not list(_advice(made, "cpu"))


def test_older_samples_without_correction_are_pointed_out() -> None:
    made = config("grpo")
    made.trainer.max_staleness = 1
    (advice,) = _advice(made, "cpu")
    assert "rollout_correction.rollout_is=token" in advice
    made.algorithm.rollout_correction.rollout_is = "token"
    assert not list(_advice(made, "cpu"))


def checkpoint(folder: Path, vocabulary: int) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": vocabulary}))
    return str(folder)


def test_a_critic_reads_the_policys_tokens(tmp_path: Path) -> None:
    policy, same, other = (
        checkpoint(tmp_path / name, size) for name, size in (("a", 8), ("b", 8), ("c", 9))
    )
    assert not _vocabulary_problems(
        {"actor_rollout_ref.model.path": policy, "critic.model.path": same}
    )
    (problem,) = _vocabulary_problems(
        {"actor_rollout_ref.model.path": policy, "critic.model.path": other}
    )
    assert "a vocabulary of 9 tokens and the policy one of 8" in problem


def test_lengths_are_compared_with_the_policy_beside_other_problems(tmp_path: Path) -> None:
    made = config("grpo")
    made.actor_rollout_ref.model.path = checkpoint(tmp_path / "policy", 8)
    settings = json.loads((tmp_path / "policy" / "config.json").read_text())
    (tmp_path / "policy" / "config.json").write_text(
        json.dumps({**settings, "max_position_embeddings": 512})
    )
    made.data.max_prompt_length, made.data.max_response_length = 400, 200
    made.critic.strategy = "megatorn"
    problems = "\n".join(_part_problems(made, "cpu"))
    assert "nothing named 'megatorn'" in problems
    assert "= 600 tokens, and" in problems
    assert "was made for 512" in problems

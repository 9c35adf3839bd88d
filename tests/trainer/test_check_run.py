"""What an estimator needs and refuses, and what the critic takes over from the actor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmrl.cluster.devices import Machine
from rmrl.config.schema import Config, MegatronConfig
from rmrl.errors import ConfigError, Problems
from rmrl.rewards.dropins.dropin import FunctionSource
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer import check_strategy
from rmrl.trainer.check_algorithm import algorithm_problems, critic_settings, needs_critic
from rmrl.trainer.check_run import (
    _advice,
    _first_rows,
    _package_problems,
    _part_problems,
    _settings_problems,
    _settle,
    _vocabulary_problems,
    check,
)
from tests.config.test_check import config_with

ACTOR, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.model"
ROLLOUT = "actor_rollout_ref.rollout"
FILTERS = "algorithm.filter_groups"


def config(estimator: str, **changes: Any) -> Config:
    return config_with(**{"algorithm.adv_estimator": estimator, **changes})


def rule(**entries: Any) -> RewardSpec:
    return RewardSpec(**{"name": "helpful", "kind": "rule", "weight": 1.0, **entries})


def ranked(**transform: str) -> RewardSpec:
    return rule(transforms=(transform,))


# --- the critic


@pytest.mark.parametrize(
    ("config", "critic"),
    [
        (Config(), True),
        (config("grpo"), False),
        (config("grpo", **{"critic.enable": True}), True),
        (config("grpo", **{"critic.enable": True, "trainer.val_only": True}), False),
    ],
)
def test_which_run_trains_a_critic(config: Config, critic: bool) -> None:
    assert needs_critic(config) is critic


def test_the_critic_takes_over_what_is_not_typed() -> None:
    actor = {f"{ACTOR}.ppo_mini_batch_size": 64, f"{ACTOR}.ppo_epochs": 3}
    critic = critic_settings(config("gae", **actor, **{f"{MODEL}.trust_remote_code": True}))
    assert (critic.model.path, critic.strategy) == ("policy", "fsdp2")
    assert (critic.ppo_mini_batch_size, critic.ppo_epochs) == (64, 3)
    assert critic.model.trust_remote_code
    assert critic.optim.lr == 1e-5


def test_what_is_typed_for_the_critic_stays() -> None:
    typed = {"critic.model.path": "values", "critic.ppo_epochs": 2, "critic.strategy": "fsdp"}
    critic = critic_settings(config("gae", **typed))
    assert (critic.model.path, critic.ppo_epochs, critic.strategy) == ("values", 2, "fsdp")


@pytest.mark.parametrize(
    ("changes", "tokenizer"),
    [
        ({}, "policy"),
        ({f"{MODEL}.tokenizer_path": "tokens"}, "tokens"),
        ({f"{MODEL}.tokenizer_path": "tokens", "critic.model.tokenizer_path": "own"}, "own"),
    ],
)
def test_the_critic_reads_with_the_policys_tokenizer(
    changes: dict[str, str], tokenizer: str
) -> None:
    critic = critic_settings(config("gae", **{"critic.model.path": "critic"}, **changes))
    assert critic.model.tokenizer_path == tokenizer


def test_the_critic_has_the_actors_layout_where_it_names_none() -> None:
    layout = {
        f"{ACTOR}.megatron.tensor_model_parallel_size": 4,
        f"{ACTOR}.megatron.optimizer_offload": True,
        "critic.megatron.optimizer_offload": False,
    }
    critic = critic_settings(config("gae", **layout))
    assert critic.megatron == MegatronConfig(tensor_model_parallel_size=4)


# --- estimators and rewards

BYPASS = {"algorithm.rollout_correction.bypass_mode": True}
STEPS = rule(name="steps", kind="process", function=FunctionSource("steps.py"))
COMPARES = "'helpful' compares responses with each other, and algorithm.adv_estimator=remax scores"


@pytest.mark.parametrize(
    ("estimator", "changes", "specs", "words"),
    [
        ("grpo", {f"{ROLLOUT}.n": 1}, [], "n=1 with algorithm.adv_estimator=grpo: "),
        ("grpo", {f"{ROLLOUT}.n": 1}, [], "use n >= 2"),
        ("rloo", {f"{ROLLOUT}.n": 1}, [], "n=1 with algorithm.adv_estimator=rloo: "),
        ("rloo", {f"{ROLLOUT}.n": 1}, [], "use n >= 2"),
        ("gae", {f"{ROLLOUT}.n": 1, f"{FILTERS}.enable": True}, [], "no group has contrast"),
        ("grpo_passk", {"algorithm.passk_k": 1}, [], "algorithm.passk_k=1"),
        (
            "gae",
            {"critic.enable": False},
            [],
            "adv_estimator=gae needs a critic and critic.enable=False",
        ),
        (
            "grpo",
            {"critic.enable": True},
            [],
            "critic.enable=True with algorithm.adv_estimator=grpo, which reads no values",
        ),
        ("optimal_token_baseline", BYPASS, [], "set bypass_mode=False, or use adv_estimator=opo"),
        ("grpo", {"trainer.critic_warmup": 5}, [], "trainer.critic_warmup=5 without a critic"),
        ("gdpo", {}, [STEPS], "cannot take the step scores of reward 'steps'"),
        (
            "grpo_passk",
            {"algorithm.use_kl_in_reward": True},
            [],
            "cannot take algorithm.use_kl_in_reward=True",
        ),
        # Ranked or standardized by itself the greedy response scores 0, whatever it is worth.
        ("remax", {}, [ranked(kind="rank")], COMPARES),
        ("remax", {}, [ranked(kind="standardize", by="group")], COMPARES),
        ("remax", {}, [ranked(kind="standardize", by="batch")], COMPARES),
    ],
)
def test_what_an_estimator_refuses(
    estimator: str, changes: dict[str, Any], specs: list[RewardSpec], words: str
) -> None:
    (problem,) = algorithm_problems(config(estimator, **changes), specs)
    assert words in problem


@pytest.mark.parametrize(
    ("estimator", "changes", "specs"),
    [
        ("grpo", {f"{ROLLOUT}.n": 2}, []),
        ("gae", {f"{ROLLOUT}.n": 1}, []),
        ("remax", {f"{ROLLOUT}.n": 1}, []),
        ("a_package_of_users:advantage", {"critic.enable": True}, []),  # may read its values
        ("optimal_token_baseline", {}, []),
        ("opo", BYPASS, []),
        ("gae", {"trainer.critic_warmup": 5}, []),
        ("grpo", {}, [STEPS]),
        ("rloo", {}, [ranked(kind="rank")]),
        ("rloo", {}, [ranked(kind="standardize", by="group")]),
        ("rloo", {}, [ranked(kind="standardize", by="batch")]),
        ("remax", {f"{ROLLOUT}.n": 1}, [ranked(kind="standardize", by="running")]),
    ],
)
def test_what_an_estimator_takes(
    estimator: str, changes: dict[str, Any], specs: list[RewardSpec]
) -> None:
    assert list(algorithm_problems(config(estimator, **changes), specs)) == []


@pytest.mark.parametrize(
    ("metric", "known"),
    [(None, True), ("reward", True), ("helpful", True), ("inner", False), ("helpfull", False)],
)
def test_dynamic_sampling_looks_at_a_reward_of_the_run(metric: str | None, known: bool) -> None:
    filters = {f"{FILTERS}.enable": True, f"{FILTERS}.metric": metric}
    specs = [rule(), rule(name="inner", part_of="helpful")]
    problems = list(algorithm_problems(config("grpo", **filters), specs))
    assert len(problems) == (0 if known else 1)
    for problem in problems:
        assert f"{FILTERS}.metric={metric}: no reward of that name" in problem


# --- parts, packages and places


def test_a_cpu_trains_in_one_process_where_no_number_is_typed() -> None:
    cpu = config("grpo", **{"trainer.device": "cpu", "trainer.n_gpus_per_node": -1})
    assert _settle(cpu, Problems())[0].kind == "cpu"
    assert cpu.trainer.n_gpus_per_node == 1


def test_a_missing_device_hides_no_reward_and_invents_no_size(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmrl.cluster.devices._gpus_and_memory", lambda: Machine(without="none"))
    changes: dict[str, Any] = {
        f"{MODEL}.path": str(tiny_llama),
        "trainer.device": "cuda",
        "trainer.n_gpus_per_node": -1,
        f"{ACTOR}.fsdp_config.fsdp_size": 8,
        f"{ROLLOUT}.tensor_parallel_size": 8,
        "reward.models": ["gsm8k", "nowhere"],
        "data.train_files": "nowhere.parquet",
    }
    with pytest.raises(ConfigError) as caught:
        check(config("grpo", **changes), shipped_functions=tmp_path, needs_out=False)
    text = "\n".join(caught.value.problems)
    assert "trainer.device=cuda, and this machine has no GPU" in text
    assert "reward.models: nothing named 'nowhere'" in text
    assert "nowhere.parquet does not exist" in text
    assert "fsdp_size" not in text  # how many GPUs it would divide is not known
    assert "tensor_parallel_size" not in text


@pytest.mark.parametrize(
    ("changes", "packages"),
    [
        ({}, ["jsonl", "vllm"]),
        ({f"{ROLLOUT}.name": "sglang"}, ["jsonl", "sglang"]),
        ({f"{ROLLOUT}.name": "vllm"}, ["jsonl"]),
    ],
)
def test_a_server_needs_no_package_of_its_engine(
    changes: dict[str, str], packages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmrl.trainer.check_run.package_problem", lambda key, name, *_, **__: name)
    server = {"vllm": {"base_url": "http://127.0.0.1:8000"}} if changes else {}
    settings = {"trainer.logger": ["jsonl"], f"{ROLLOUT}.engine_kwargs": server}
    assert list(_package_problems(config("grpo", **settings, **changes), "cpu")) == packages


def test_batch_invariant_sampling_is_refused_where_no_engine_has_it() -> None:
    invariant = config("gae", **{f"{ROLLOUT}.batch_invariant": True})
    refused = f"{ROLLOUT}.batch_invariant=True: only vllm on NVIDIA GPUs samples so, and this run "
    on_cpu = "\n".join(_settings_problems(invariant, "cpu"))
    assert f"{refused}samples with vllm on cpu" in on_cpu
    assert "batch_invariant" not in "\n".join(_settings_problems(invariant, "cuda"))


def test_a_strategy_without_a_backend_is_named_by_its_key() -> None:
    problems = "\n".join(_part_problems(config("gae", **{"critic.strategy": "megatorn"}), "cpu"))
    assert "critic.strategy: nothing named 'megatorn'; did you mean 'megatron'?" in problems


def test_a_classifier_as_policy_is_answered_with_what_to_type(tiny_reward_llama: Path) -> None:
    changes = {f"{MODEL}.path": str(tiny_reward_llama)}
    problems = "\n".join(_part_problems(config("grpo", **changes), "cpu"))
    assert "is a LlamaForSequenceClassification, which writes no text, and a policy" in problems
    assert f"reward.models=[scorer] reward.specs.scorer.path={tiny_reward_llama}" in problems


@pytest.mark.parametrize(
    ("changes", "remedy", "words"),
    [
        (
            {"data.val_files": "val.parquet", f"{ROLLOUT}.val_kwargs.n": 4},
            {f"{ROLLOUT}.val_kwargs.do_sample": True, f"{ROLLOUT}.val_kwargs.temperature": 1.0},
            "val_kwargs.do_sample=True",
        ),
        (
            {"trainer.max_staleness": 1},
            {"algorithm.rollout_correction.rollout_is": "token"},
            "rollout_correction.rollout_is=token",
        ),
    ],
    ids=["greedy validation of several responses", "older samples without correction"],
)
def test_what_is_rarely_intended_is_pointed_out(
    changes: dict[str, Any],
    remedy: dict[str, Any],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Else a machine without bfloat16 has advice of its own.
    monkeypatch.setattr(check_strategy, "computes_bfloat16", lambda: True)
    one_process = {"trainer.n_gpus_per_node": 1}
    (advice,) = _advice(config("grpo", **one_process, **changes), "cpu")
    assert words in advice
    assert not list(_advice(config("grpo", **one_process, **changes, **remedy), "cpu"))


def checkpoint(folder: Path, vocabulary: int, **settings: int) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": vocabulary, **settings}))
    return str(folder)


def test_a_critic_reads_the_policys_tokens(tmp_path: Path) -> None:
    policy = {"actor_rollout_ref.model.path": checkpoint(tmp_path / "a", 8)}
    same, other = checkpoint(tmp_path / "b", 8), checkpoint(tmp_path / "c", 9)
    assert not _vocabulary_problems({**policy, "critic.model.path": same})
    (problem,) = _vocabulary_problems({**policy, "critic.model.path": other})
    assert "a vocabulary of 9 tokens and the policy one of 8" in problem


def test_lengths_are_compared_with_the_policy_beside_other_problems(tmp_path: Path) -> None:
    policy = checkpoint(tmp_path / "policy", 8, max_position_embeddings=512)
    lengths = {"data.max_prompt_length": 400, "data.max_response_length": 200}
    changes = {**lengths, f"{MODEL}.path": policy, "critic.strategy": "megatorn"}
    problems = "\n".join(_part_problems(config("grpo", **changes), "cpu"))
    assert "nothing named 'megatorn'" in problems
    assert "= 600 tokens, and" in problems
    assert "was made for 512" in problems


def test_a_rule_is_tried_before_training_with_tokens_as_it_gets_them_there(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    rows = [{"prompt": "2 + 2?", "reward_model": "number four"}, {"prompt": "Why?"}]
    file.write_text("\n".join(map(json.dumps, rows)))
    first, other = _first_rows(config("grpo", **{"data.train_files": str(file)}), "train")
    # one for four bytes: n, e, o
    assert (first.text, first.tokens, first.token_ids) == ("number four", 3, (110, 101, 111))
    assert (other.text, other.tokens) == ("I do not know.", 4)

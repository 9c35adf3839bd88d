"""Older key names: what they become, and the sentences where they cannot."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.config.legacy import translate
from rmrl.config.schema import Config
from rmrl.errors import ConfigError


def legacy(**section: Any) -> Config:
    config = Config()
    config.reward_model = {"enable": True, "model": {"path": ["/m/one", "/m/two"]}, "reward_function": ["f", "g"], **section}
    return config


def message_of(config: Config) -> str:
    with pytest.raises(ConfigError) as caught:
        translate(config)
    return str(caught.value)


def test_nothing_older_nothing_said():
    config = Config()
    assert translate(config) == []
    config.reward_model = {"enable": False, "nonsense": 1}
    assert translate(config) == []
    assert config == Config(reward_model={"enable": False, "nonsense": 1})


def test_lists_are_per_model_and_scalars_hold_for_all():
    config = legacy(
        reward_weight=[0.3, 0.5], reward_combine_func=["add", "mul"], reward_vllm_rollout={"temperature": [0.1, 0.9], "top_p": 0.5}
    )
    translate(config)
    assert (config.reward.weights, config.reward.combine_ops) == ([0.3, 0.5], ["add", "mul"])
    assert config.reward.specs["f"]["sampling"] == {"temperature": 0.1, "top_p": 0.5}
    assert config.reward.specs["g"]["sampling"] == {"temperature": 0.9, "top_p": 0.5}
    assert config.reward.specs["g"]["path"] == "/m/two"


def test_a_scalar_model_needs_no_function_and_no_sampling():
    config = legacy(reward_model_type="scalar", reward_function=None, reward_vllm_rollout={"temperature": 0.7, "dtype": "float32"})
    translate(config)
    assert config.reward.models == ["one", "two"]
    assert config.reward.specs["one"] == {"kind": "bradley_terry", "path": "/m/one", "engine": {"dtype": "float32"}}


def test_a_cloud_model_is_a_server():
    config = legacy(reward_model_type="cloud", reward_function=None, model={"path": ["http://a:1/score", "http://b:1/score"]})
    translate(config)
    assert config.reward.specs["score"] == {"kind": "remote", "url": "http://a:1/score", "wire": "openrlhf"}
    judged = legacy(reward_model_type="cloud", model={"path": ["http://a:1/v1", "http://b:1/v1"]})
    judged.reward.specs = {"f": {"model": "Qwen/Qwen3-4B"}}
    translate(judged)
    assert judged.reward.specs["f"] == {
        "kind": "remote", "url": "http://a:1/v1", "wire": "openai", "function": "f", "model": "Qwen/Qwen3-4B",
    }  # fmt: skip


def test_two_models_of_one_function_are_two_rewards():
    config = legacy(reward_function=["f", "f"], reward_weight=[1, 2])
    translate(config)
    assert config.reward.models == ["f", "f_2"]
    assert config.reward.specs["f_2"]["function"] == "f"
    assert [config.reward.specs[name]["path"] for name in config.reward.models] == ["/m/one", "/m/two"]


def test_a_custom_function_is_a_rule():
    config = Config(custom_reward_function={"path": "folder/mine.py", "name": "rate"})
    assert translate(config) == ["custom_reward_function.path=folder/mine.py is now reward.models=[mine]"]
    assert config.reward.models == ["mine"]
    assert config.reward.specs == {"mine": {"kind": "rule", "function": "folder/mine.py:rate"}}


def test_a_custom_function_beside_models_counts_once():
    config = Config(custom_reward_function={"path": "mine.py", "name": None})
    config.reward.models, config.reward.weights = ["mine", "b"], [0.2, 0.3]
    translate(config)
    assert config.reward.models == ["mine", "b", "mine_2"]
    assert config.reward.weights == [0.2, 0.3, 1.0]
    assert config.reward.specs["mine_2"]["function"] == "mine.py:compute_score"


@pytest.mark.parametrize(
    ("combine_reward", "models", "ops"), [(True, ["r", "f", "g"], ["add", "mul", "mul"]), (False, ["f", "g"], ["mul", "mul"])]
)
def test_the_fold_starts_from_the_rule(combine_reward: bool, models: list[str], ops: list[str]):
    config = legacy(reward_combine_func="mul", combine_reward=combine_reward, reward_weight=[0.5, 0.5])
    config.custom_reward_function = {"path": "r.py"}
    translate(config)
    assert (config.reward.models, config.reward.combine_ops) == (models, ops)
    assert config.reward.weights == [1.0] * (len(models) - 2) + [0.5, 0.5]
    assert sorted(config.reward.specs) == sorted(models)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"reward_weight": [1.0]}, "reward_model.reward_weight has 1 values for 2 reward models"),
        ({"reward_weight": "much"}, "reward_model.reward_weight='much': give a number"),
        ({"reward_function": ["f"]}, "reward_model.model.path has 2 entries and reward_model.reward_function 1 entry"),
        ({"model": {}}, "reward_model.model.path has 0 entries"),
        ({"model": "/m/one"}, "reward_model.model='/m/one': give entries, e.g. reward_model.model.path=..."),
        ({"model": {"path": ["/m/one", "/m/two"], "lora_rank": 3}}, "reward_model.model.lora_rank: no such key"),
        ({"reward_model_type": "bert"}, "reward_model.reward_model_type=bert: not a choice; known: cloud, grm, scalar"),
        ({"reward_weigth": 1}, "reward_model.reward_weigth: no such key; did you mean 'reward_weight'?"),
        (
            {"reward_vllm_rollout": {"temprature": 1}},
            "reward_model.reward_vllm_rollout.temprature: no such key; did you mean 'temperature'?",
        ),
    ],
)
def test_what_cannot_be_translated_is_said(section: dict[str, Any], words: str):
    assert words in message_of(legacy(**section))


def test_older_and_newer_names_together_are_refused():
    config = legacy()
    config.reward.models = ["a"]
    assert "both reward.models" in message_of(config)
    config = legacy()
    config.custom_reward_function = {"path": "r.py"}
    config.reward.weights = [1.0]
    assert "use one of them" in message_of(config)


def test_keys_without_effect_are_told():
    notices = translate(legacy(micro_batch_size=4, model={"path": ["/m/one", "/m/two"], "fsdp_config": {"param_offload": True}}))
    assert notices[1].startswith("reward_model.micro_batch_size, reward_model.model.fsdp_config: no effect")

"""Older key names: what they become, and the sentences where they cannot."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.config.compat import start_from_rules, translate
from rmrl.config.compat.use import needs_rule_of_source
from rmrl.config.schema import Config
from rmrl.errors import ConfigError


def legacy(**section: Any) -> Config:
    config = Config()
    config.reward_model = {
        "enable": True,
        "model": {"path": ["/m/one", "/m/two"]},
        "reward_function": ["f", "g"],
        **section,
    }
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
        reward_weight=[0.3, 0.5],
        reward_combine_func=["add", "mul"],
        reward_vllm_rollout={"temperature": [0.1, 0.9], "top_p": 0.5},
    )
    translate(config)
    assert (config.reward.weights, config.reward.combine_ops) == ([0.3, 0.5], ["add", "mul"])
    for name, temperature in (("f", 0.1), ("g", 0.9)):
        sampling = {"temperature": temperature, "top_p": 0.5, "max_tokens": 4096}
        assert config.reward.specs[name]["sampling"] == sampling
    assert config.reward.specs["g"]["path"] == "/m/two"


def test_a_scalar_model_needs_no_function_and_no_sampling():
    config = legacy(
        reward_model_type="scalar",
        reward_function=None,
        reward_vllm_rollout={"temperature": 0.7, "dtype": "float32"},
    )
    translate(config)
    assert config.reward.models == ["one", "two"]
    assert config.reward.specs["one"] == {
        "kind": "bradley_terry",
        "path": "/m/one",
        "engine": {"dtype": "float32"},
    }


def test_a_cloud_model_is_a_server():
    config = legacy(
        reward_model_type="cloud",
        reward_function=None,
        model={"path": ["http://a:1/score", "http://b:1/score"]},
    )
    translate(config)
    assert config.reward.specs["score"] == {
        "kind": "remote",
        "url": "http://a:1/score",
        "wire": "openrlhf",
    }
    judged = legacy(reward_model_type="cloud", model={"path": ["http://a:1/v1", "http://b:1/v1"]})
    judged.reward.specs = {"f": {"model": "Qwen/Qwen3-4B"}}
    translate(judged)
    assert judged.reward.specs["f"] == {
        "kind": "remote", "url": "http://a:1/v1", "wire": "openai", "function": "f", "model": "Qwen/Qwen3-4B", "fence": False,
        "sampling": {"temperature": 0.6, "max_tokens": 4096},
    }  # fmt: skip


def test_two_models_of_one_function_are_two_rewards():
    config = legacy(reward_function=["f", "f"], reward_weight=[1, 2])
    translate(config)
    assert config.reward.models == ["f", "f_2"]
    assert config.reward.specs["f_2"]["function"] == "f"
    assert config.reward.specs["f"]["path"] == "/m/one"
    assert config.reward.specs["f_2"]["path"] == "/m/two"


def test_a_custom_function_is_a_rule():
    config = Config(custom_reward_function={"path": "folder/mine.py", "name": "rate"})
    assert translate(config) == [
        "custom_reward_function.path=folder/mine.py is now reward.models=[mine]"
    ]
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
    ("combine_reward", "models", "ops"),
    [(True, ["r", "f", "g"], ["add", "mul", "mul"]), (False, ["f", "g"], ["mul", "mul"])],
)
def test_the_fold_starts_from_the_rule(combine_reward: bool, models: list[str], ops: list[str]):
    config = legacy(
        reward_combine_func="mul", combine_reward=combine_reward, reward_weight=[0.5, 0.5]
    )
    config.custom_reward_function = {"path": "r.py"}
    translate(config)
    assert (config.reward.models, config.reward.combine_ops) == (models, ops)
    assert config.reward.weights == [1.0] * (len(models) - 2) + [0.5, 0.5]
    assert sorted(config.reward.specs) == sorted(models)


TWO_PATHS = ["/m/one", "/m/two"]


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"reward_weight": [1.0]}, "reward_model.reward_weight has 1 values for 2"),
        ({"reward_weight": "much"}, "reward_model.reward_weight='much': "),
        ({"reward_function": ["f"]}, "model.path has 2 entries and reward_model.reward_function 1"),
        ({"model": {}}, "reward_model.model.path has 0 entries"),
        ({"model": "/m/one"}, "reward_model.model='/m/one': "),
        ({"model": {"path": TWO_PATHS, "lora_rank": 3}}, "reward_model.model.lora_rank: no such"),
        (
            {"reward_model_type": "bert"},
            "reward_model.reward_model_type=bert: not a choice; known: BT, cloud, grm, scalar",
        ),
        (
            {"reward_weigth": 1},
            "reward_model.reward_weigth: no such key; did you mean 'reward_weight'",
        ),
        (
            {"reward_vllm_rollout": {"temprature": 1}},
            "reward_model.reward_vllm_rollout.temprature: no such key; did you mean 'temperature'",
        ),
        ({"max_length": 2048}, "reward_model.max_length=2048: "),
        (
            {"sandbox_fusion": {"url": "http://s:1"}},
            "reward_model.sandbox_fusion.url=http://s:1: programs are run by a reward of kind code",
        ),
        (
            {"model": {"path": ["/a", "/b"], "update": "before"}},
            "reward_model.model.update=before: PRIME",
        ),
        ({"reward_vllm_rollout": {"multi_turn": {"enable": True}}}, "multi_turn.enable=True: "),
        ({"reward_vllm_rollout": {"use_fire_sampling": True}}, "use_fire_sampling=True"),
        ({"reward_manager": "mine"}, "reward_model.reward_manager=mine: "),
        ({"reward_vllm_rollout": {"n": 1}, "rollout": {"n": 1}}, "are both given: use one of them"),
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


def test_judges_are_asked_and_count_where_the_rule_of_that_time_let_them():
    config = legacy(reward_weight=[0.3, 0.5])
    config.custom_reward_function = {"path": "r.py"}
    notices = translate(config)
    assert [config.reward.specs[name]["gate"] for name in ("f", "g")] == [["r"], ["r"]]
    assert [config.reward.specs[name]["counts_at"] for name in ("f", "g")] == [{"r": 1}, {"r": 1}]
    assert any(
        "f, g are computed where it is above 0 and count where it is 1" in line for line in notices
    )
    alone = legacy(combine_reward=False)
    translate(alone)
    assert "gate" not in alone.reward.specs["f"]


def test_the_rule_of_the_data_source_comes_first_once_the_rows_are_known():
    config = legacy(reward_weight=[0.3, 0.5], reward_combine_func=["add", "mul"])
    translate(config)
    assert needs_rule_of_source(config)
    start_from_rules(config, {"gsm8k": ["openai/gsm8k"]})
    reward = config.reward
    assert reward.models == ["gsm8k", "f", "g"]
    assert reward.weights == [1.0, 0.3, 0.5]
    assert reward.combine_ops == ["add", "add", "mul"]
    assert (reward.specs["g"]["gate"], reward.specs["g"]["counts_at"]) == (["gsm8k"], {"gsm8k": 1})
    assert reward.by_source == {}


def test_several_data_sources_start_from_a_rule_each():
    config = legacy(reward_weight=[0.3, 0.5])
    translate(config)
    start_from_rules(
        config, {"gsm8k": ["openai/gsm8k"], "math_verify": ["lighteval/MATH", "hendrycks/math"]}
    )
    assert config.reward.models == ["gsm8k", "math_verify", "f", "g"]
    assert sorted(config.reward.by_source) == ["hendrycks/math", "lighteval/MATH", "openai/gsm8k"]
    assert config.reward.by_source["openai/gsm8k"] == {
        "models": ["gsm8k", "f", "g"],
        "weights": [1.0, 0.3, 0.5],
    }
    assert config.reward.specs["f"]["counts_at"] == {"gsm8k": 1, "math_verify": 1}


def test_a_line_with_only_the_keys_of_verl_has_the_model_alone():
    """There the scores of a reward model are the reward, and the rule is not called."""
    config = Config(
        reward_model={
            "enable": True,
            "model": {"path": "/m/one", "input_tokenizer": "/m/p"},
            "micro_batch_size_per_gpu": 4,
        }
    )
    translate(config, kind_of=lambda path: "bradley_terry")
    assert not needs_rule_of_source(config)
    assert (config.reward.models, config.reward.weights) == (["one"], [1.0])
    assert config.reward.specs == {"one": {"kind": "bradley_terry", "path": "/m/one", "engine": {}}}
    config = Config(
        reward_model={"enable": True, "model": {"path": "/m/one"}},
        custom_reward_function={"path": "r.py"},
    )
    assert (
        "type reward_model.combine_reward=True to count the model where the function gives 1"
        in message_of(config)
    )


def test_defaults_are_those_of_that_time():
    config = Config(
        reward_model={"enable": True, "reward_model_type": "grm", "model": {"path": "/m/one"}}
    )
    translate(config)
    assert config.reward.models == ["rider_reward"]
    assert config.reward.weights == [0.5]
    assert config.reward.combine_ops == ["add"]
    spec = config.reward.specs["rider_reward"]
    assert spec["sampling"] == {"temperature": 0.6, "max_tokens": 4096}
    assert spec["fence"] is False
    # prompt, response, words around it, verdict
    assert spec["engine"] == {"max_model_len": 512 + 512 + 512 + 4096}


def test_the_judges_length_has_two_names():
    for key in ("rollout_response_length", "response_length"):
        config = legacy(reward_vllm_rollout={key: 64})
        translate(config)
        assert config.reward.specs["f"]["sampling"]["max_tokens"] == 64
    config = legacy(reward_vllm_rollout={"rollout_response_length": 64, "response_length": 2048})
    translate(config)
    assert config.reward.specs["f"]["sampling"]["max_tokens"] == 64


def test_use_bge_is_a_similarity_that_comes_before_the_models():
    config = legacy(
        use_bge=True, bge_weight=0.25, reward_weight=[0.3, 0.5], reward_combine_func=["add", "mul"]
    )
    translate(config)
    reward = config.reward
    assert reward.models == ["bge", "f", "g"]
    assert reward.weights == [0.25, 0.3, 0.5]
    assert reward.combine_ops == ["add", "add", "mul"]
    assert reward.specs["bge"] == {
        "kind": "similarity",
        "path": "BAAI/bge-large-zh-v1.5",
        "function": "bge_similarity",
    }
    # rm_prompt_0 belongs to the first model, though the similarity stands ahead of it
    assert [reward.specs[name]["rm_prompt"] for name in ("f", "g")] == ["0", "1"]
    off = legacy()
    assert any(line.startswith("reward_model.use_bge is off") for line in translate(off))
    assert "bge" not in off.reward.models


def test_bt_is_the_other_name_of_a_scalar_model():
    config = legacy(reward_model_type=["BT", "grm"])
    translate(config)
    assert [config.reward.specs[name]["kind"] for name in ("f", "g")] == [
        "bradley_terry",
        "generative",
    ]
    assert "sampling" not in config.reward.specs["f"]


def test_the_overlong_buffer_shapes_the_rule():
    config = Config(
        reward_model={
            "reward_manager": "dapo",
            "reward_kwargs": {
                "max_resp_len": 8192,
                "overlong_buffer_cfg": {
                    "enable": True,
                    "len": 4096,
                    "penalty_factor": 1.0,
                    "log": False,
                },
            },
        },
        custom_reward_function={"path": "r.py"},
    )
    assert "reward.transforms.r=" in translate(config)[-1]
    assert config.reward.transforms == {
        "r": {"kind": "overlong", "max_length": 8192, "buffer": 4096, "penalty": 1.0}
    }
    early = Config(
        reward_model={"overlong_buffer": {"enable": True, "len": 128, "penalty_factor": 0.5}}
    )
    early.reward.models = ["gsm8k"]
    translate(early)
    assert early.reward.transforms == {
        "gsm8k": {"kind": "overlong", "max_length": 512, "buffer": 128, "penalty": 0.5}
    }


def test_keys_without_effect_are_told():
    notices = translate(
        legacy(
            micro_batch_size=4,
            model={"path": ["/m/one", "/m/two"], "fsdp_config": {"param_offload": True}},
        )
    )
    assert notices[1].startswith(
        "reward_model.micro_batch_size, reward_model.model.fsdp_config: no effect"
    )

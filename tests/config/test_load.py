"""From a command line to typed objects: what is accepted, what is refused and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmrl.config.check import config_problems
from rmrl.config.compat import translate
from rmrl.config.load import compose_config, normalise, to_yaml
from rmrl.config.schema import (
    AuditConfig,
    CalibrateConfig,
    CompareConfig,
    Config,
    EvalConfig,
    MegatronConfig,
    ScoreConfig,
)
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean
from tests.config.reference_lines import SEVERAL_NODES, TWO_JUDGES, typed


def reference_line(line: str, folder: Path) -> list[str]:
    paths = {"TRAIN": "train.parquet", "RM1": "rm1", "RM2": "rm2", "POLICY": "policy", "OUT": "out"}
    return typed(line, **{name: folder / path for name, path in paths.items()})


def problems_of(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        compose_config(overrides)
    return caught.value.problems


def test_defaults_are_the_schemas():
    assert compose_config([]) == Config()


def test_values_get_the_schemas_types():
    config = compose_config(
        [
            "trainer.seed=3",
            "actor_rollout_ref.actor.optim.lr=1e-5",
            "data.shuffle=false",
            "data.val_batch_size=null",
        ]
    )
    assert (config.trainer.seed, config.actor_rollout_ref.actor.optim.lr) == (3, 1e-5)
    assert config.data.shuffle is False
    assert config.data.val_batch_size is None


def test_lists_and_one_value_for_a_list():
    config = compose_config(
        [
            "reward.models=[a,b]",
            "reward.weights=[0.3,-1]",
            "trainer.logger=console",
            "data.train_files=[x.parquet,y.jsonl]",
        ]
    )
    assert (config.reward.models, config.reward.weights) == (["a", "b"], [0.3, -1.0])
    assert config.trainer.logger == ["console"]
    assert config.data.train_files == ["x.parquet", "y.jsonl"]
    assert compose_config(["reward.models=gsm8k", "reward.weights=2"]).reward.weights == [2.0]
    assert compose_config(["reward.weights=null"]).reward.weights is None


def test_names_that_users_give_rewards():
    names = "/abs/model-1.5,org/name,rmrl.rewards.answers.gsm8k:score"
    assert compose_config([f"reward.models=[{names}]"]).reward.models == names.split(",")


def test_free_sections_take_new_entries():
    config = compose_config(
        [
            "reward.specs.judge.path=/models/x",
            "reward.specs.judge.function=folder/file.py:rate",
            "reward.specs.judge.sampling.temperature=0.7",
            "+reward.specs.judge.kind=generative",
            "reward.on_missing={impute:0.5}",
            "data.apply_chat_template_kwargs={enable_thinking:false}",
            "ray_kwargs.ray_init.num_cpus=4",
            "actor_rollout_ref.rollout.engine_kwargs.vllm.max_logprobs=3",
        ]
    )
    assert config.reward.specs == {
        "judge": {
            "path": "/models/x",
            "function": "folder/file.py:rate",
            "sampling": {"temperature": 0.7},
            "kind": "generative",
        }
    }
    assert type(config.reward.specs["judge"]["sampling"]) is dict
    assert config.reward.on_missing == {"impute": 0.5}
    assert config.data.apply_chat_template_kwargs == {"enable_thinking": False}
    assert config.ray_kwargs.ray_init == {"num_cpus": 4}
    assert config.actor_rollout_ref.rollout.engine_kwargs == {"vllm": {"max_logprobs": 3}}
    assert compose_config(["reward.specs={judge:{path:x}}"]).reward.specs == {
        "judge": {"path": "x"}
    }


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("trainer.totl_epochs=3", ["trainer.totl_epochs: ", "did you mean 'total_epochs'?"]),
        ("rewards.models=[a]", ["rewards", "did you mean 'reward'?"]),
        ("trainer.seed.x=3", ["trainer.seed.x: 'trainer.seed'", "no entry 'x'"]),
        ("trainer.seed=three", ["trainer.seed=three: ", "three"]),
        ("trainer.seed", ["trainer.seed", "section.key=value"]),
        (
            "trainer.max_critic_ckpt_to_keep=2",
            ["trainer.max_critic_ckpt_to_keep=", "trainer.max_actor_ckpt_to_keep"],
        ),
        (
            "trainer.default_hdfs_dir=hdfs://x",
            ["trainer.default_hdfs_dir=", "trainer.default_local_dir"],
        ),
        (
            "actor_rollout_ref.ref.megatron.tensor_model_parallel_size=2",
            ["actor_rollout_ref.ref.megatron.tensor_model_parallel_size=", "the actor's layout"],
        ),
        (
            "actor_rollout_ref.ref.strategy=megatron",
            ["actor_rollout_ref.ref.strategy=", "the actor's strategy"],
        ),
        ("data.custom_cls.path=my.py", ["data.custom_cls.path=", "parquet schema"]),
        (
            "data=rows",
            ["data=rows: ", "'data' is a section; give its keys, data.<key>=..., or the name of a"],
        ),
        (
            "actor_rollout_ref.model=/models/qwen",
            ["actor_rollout_ref.model=/models/qwen: ", "ModelConfig"],
        ),
        ("reward=./mine", ["reward=./mine: ", "nothing named './mine'"]),
        ("reward.models=[a,", ["reward.models=[a,: ", "quote the word, 'reward.models=[a, b]'"]),
        ("b]", ["b]: ", "the rest of a list or mapping that was cut at a space"]),
    ],
)
def test_what_is_no_key_or_no_value_of_it(override: str, parts: list[str]):
    """The message starts with the key, and says what to use."""
    (problem,) = problems_of(override)
    assert problem.startswith(parts[0])
    assert parts[1] in problem.removeprefix(parts[0])


@pytest.mark.parametrize(
    ("override", "files"),
    [
        ("data=rows.jsonl", "rows.jsonl"),
        ("data=[a.parquet,hf://owner/name/test]", ["a.parquet", "hf://owner/name/test"]),
        ("data='shards/*.csv'", "shards/*.csv"),
        ("data=./saved", "./saved"),
    ],
)
def test_data_is_short_for_its_files(override: str, files: Any):
    for root in (ScoreConfig, AuditConfig, CompareConfig, EvalConfig, CalibrateConfig):
        assert compose_config([override], root).data.files == files


def test_a_hint_lists_no_more_than_one_can_read():
    hint = did_you_mean("entry_7", [f"entry_{number}" for number in range(200)])
    assert hint.startswith("; did you mean 'entry_7'? known: entry_0, entry_1, ")
    assert hint.endswith(", ... (200 names)")
    assert hint.count("entry_") == 41  # 40 names and the nearest


def test_all_problems_at_once():
    assert len(problems_of("trainer.sed=1", "data.custom_cls.path=a.py", "data.shufle=True")) == 3
    assert len(problems_of("trainer.seed=x", "data.shuffle=maybe", "trainer.nnodes=1")) == 2


@pytest.mark.parametrize(
    "override",
    ["trainer.balance_batch=True", "actor_rollout_ref.rollout.mode=async", "data.return_raw_chat=True",
     "data.filter_overlong_prompts_workers=8", "trainer.max_critic_ckpt_to_keep=null", "actor_rollout_ref.actor.megatron.use_mbridge=True",
     "actor_rollout_ref.ref.megatron.use_dist_checkpointing=False"],
)  # fmt: skip
def test_keys_that_ask_for_what_is_so_are_accepted(override: str):
    assert normalise([override]) == []


def test_keys_of_similar_trainers_become_ours():
    config = compose_config(
        [
            "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
            "actor_rollout_ref.ref.fsdp_config.param_offload=True",
            "actor_rollout_ref.actor.policy_loss=gspo",
            "critic.model.fsdp_config.param_offload=True",
        ]
    )
    assert config.critic.fsdp_config.param_offload is True
    assert config.actor_rollout_ref.rollout.tensor_parallel_size == 2
    assert config.actor_rollout_ref.ref.param_offload is True
    assert config.actor_rollout_ref.actor.policy_loss.loss_mode == "gspo"


@pytest.mark.parametrize("plus", ["", "+", "++"])
def test_the_references_offloading_has_one_key_whatever_the_strategy(plus: str):
    """With or without the + of a key that is not there in the first place."""
    assert (
        compose_config(
            [f"{plus}actor_rollout_ref.ref.megatron.param_offload=True"]
        ).actor_rollout_ref.ref.param_offload
        is True
    )


def test_the_critic_says_only_where_its_layout_differs():
    """null: the actor's; entries of override_* are added."""
    config = compose_config(
        [
            "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4",
            "actor_rollout_ref.actor.megatron.sequence_parallel=False",
            "actor_rollout_ref.actor.megatron.override_ddp_config.bucket_size=1000",
            "critic.megatron.tensor_model_parallel_size=2",
            "critic.megatron.override_ddp_config.average_in_collective=True",
        ]
    )
    assert config.critic.megatron.pipeline_model_parallel_size is None
    merged = config.critic.megatron.over(config.actor_rollout_ref.actor.megatron)
    wanted = MegatronConfig(
        tensor_model_parallel_size=2,
        sequence_parallel=False,
        override_ddp_config={"bucket_size": 1000, "average_in_collective": True},
    )
    assert merged == wanted
    assert config.actor_rollout_ref.actor.megatron.override_ddp_config == {"bucket_size": 1000}


def test_a_loss_with_its_settings_may_be_given_as_a_mapping():
    loss = compose_config(
        ["actor_rollout_ref.actor.policy_loss={loss_mode:sapo,tau_neg:1.2}"]
    ).actor_rollout_ref.actor.policy_loss
    assert (loss.loss_mode, loss.tau_neg) == ("sapo", 1.2)


def test_flags_pass_through():
    given = ["--cfg", "job", "trainer.seed=2", "-m", "reward.specs.a.path=b"]
    assert normalise(given) == ["--cfg", "job", "trainer.seed=2", "-m", "++reward.specs.a.path=b"]
    assert normalise(["-m", "trainer.seed=1,2"]) == ["-m", "trainer.seed=1,2"]


def test_the_yaml_holds_every_key():
    text = to_yaml(compose_config(["trainer.seed=7"]))
    assert "seed: 7" in text
    assert "stall_timeout_s: 3600.0" in text


def test_the_two_judge_command_line_composes_and_translates(tmp_path: Path):
    config = compose_config(reference_line(TWO_JUDGES, tmp_path))
    notices = translate(config)
    assert config.reward.models == ["rider_reward", "consistency_reward"]
    assert config.reward.weights == [0.3, 0.5]
    assert (config.reward.combine, config.reward.combine_ops) == ("fold", ["add", "add"])
    assert config.reward.specs["rider_reward"] == {
        "kind": "generative",
        "path": f"{tmp_path}/rm1",
        "function": "rider_reward",
        "sampling": {"temperature": 0.7, "max_tokens": 4096},
        "fence": False,
        "engine": {
            "tensor_parallel_size": 4,
            "gpu_memory_utilization": 0.8,
            "max_model_len": 6144 + 2048 + 512 + 4096,
        },
    }
    assert config.actor_rollout_ref.rollout.tensor_parallel_size == 4
    assert config_problems(config) == []
    assert "reward.models=[rider_reward,consistency_reward]" in notices[0]
    assert "reward_model.micro_batch_size" in notices[1]


def test_the_command_line_for_several_nodes_composes(tmp_path: Path):
    config = compose_config(reference_line(TWO_JUDGES + SEVERAL_NODES, tmp_path))
    translate(config)
    assert config_problems(config) == []
    assert config.actor_rollout_ref.ref.param_offload is True


def test_newer_names_of_verl_lead_to_the_same_places():
    config = compose_config(
        [
            "reward.custom_reward_function.path=mine.py",
            "reward.custom_reward_function.name=rate",
            "+reward.custom_reward_function.reward_kwargs.k=3",
            "reward.reward_manager.name=dapo",
            "reward.num_workers=3",
            "reward.reward_model.enable=False",
            "actor_rollout_ref.model.is_custome_model=True",
        ]
    )
    assert config.custom_reward_function == {
        "path": "mine.py",
        "name": "rate",
        "reward_kwargs": {"k": 3},
    }
    assert config.reward_model == {"reward_manager": "dapo", "enable": False}
    assert config.reward.rule_workers == 3

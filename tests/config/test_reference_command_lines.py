"""The reference command lines of similar trainers, as their users type them: they compose, have no
problem, and mean what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.config.check import config_problems
from rmrl.config.compat import translate
from rmrl.config.load import compose_config
from rmrl.config.schema import Config
from rmrl.data.write import write_rows
from rmrl.trainer.rules_by_source import choose_rules
from tests.config.reference_lines import PPO_GSM8K, SEVERAL_NODES, TWO_JUDGES, changed, typed

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def gsm8k(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.parquet and test.parquet: sums, under the name of the data set."""
    folder = tmp_path_factory.mktemp("gsm8k")
    for split, first in (("train", 0), ("test", 50)):
        rows = [
            {
                "prompt": [{"role": "user", "content": f"{n}+1="}],
                "data_source": "openai/gsm8k",
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": str(n + 1)},
            }
            for n in range(first, first + 8)
        ]
        write_rows(folder / f"{split}.parquet", rows, overwrite=True)
    return folder


def checked(words: list[str]) -> Config:
    """The configuration, its older names translated and its rules chosen, which has no problem."""
    from rmrl.trainer.check_strategy import strategy_problems  # imports torch

    config = compose_config(words)
    translate(config)
    choose_rules(config)
    assert config_problems(config) == []
    assert list(strategy_problems(config, device="cuda")) == []
    return config


def test_two_judges_on_one_node(gsm8k: Path):
    config = checked(
        typed(
            TWO_JUDGES,
            TRAIN=gsm8k / "train.parquet",
            RM1="/m/one",
            RM2="/m/two",
            POLICY="/m/policy",
        )
    )
    reward, judges = config.reward, ("rider_reward", "consistency_reward")
    assert (reward.models, reward.weights) == (["gsm8k", *judges], [1.0, 0.3, 0.5])
    assert (reward.combine, reward.combine_ops) == ("fold", ["add", "add", "add"])
    assert [reward.specs[name]["counts_at"] for name in judges] == [{"gsm8k": 1}] * 2
    assert [reward.specs[name]["path"] for name in judges] == ["/m/one", "/m/two"]
    assert [reward.specs[name]["sampling"] for name in judges] == [
        {"temperature": 0.7, "max_tokens": 4096}
    ] * 2
    engine = reward.specs["rider_reward"]["engine"]
    assert engine == {
        "tensor_parallel_size": 4,
        "gpu_memory_utilization": 0.8,
        "max_model_len": 12800,
    }
    assert config.algorithm.adv_estimator == "reinforce_plus_plus"
    assert config.actor_rollout_ref.rollout.n == 4
    assert config.actor_rollout_ref.actor.fsdp_config.param_offload
    assert config.actor_rollout_ref.actor.fsdp_config.optimizer_offload
    assert config.trainer.save_freq == 30
    assert config.trainer.test_freq == 1_000_000
    assert config.trainer.total_epochs == 15


def test_two_judges_on_several_nodes(gsm8k: Path):
    paths = {
        "TRAIN": gsm8k / "train.parquet",
        "RM1": "/m/one",
        "RM2": "/m/two",
        "POLICY": "/m/policy",
        "OUT": "/runs/rider",
    }
    config = checked(changed(typed(TWO_JUDGES + SEVERAL_NODES, **paths), trainer__nnodes=4))
    actor = config.actor_rollout_ref.actor
    assert actor.use_kl_loss is True
    assert actor.kl_loss_coef == 1e-4
    assert actor.kl_loss_type == "low_var_kl"
    assert actor.entropy_coeff == 0
    assert config.actor_rollout_ref.model.use_remove_padding
    assert config.actor_rollout_ref.ref.param_offload
    assert (config.actor_rollout_ref.rollout.temperature, config.data.truncation) == (0.8, "error")
    assert (config.trainer.nnodes, config.trainer.default_local_dir) == (4, "/runs/rider")


def test_ppo_with_a_critic(gsm8k: Path):
    config = checked(
        typed(
            PPO_GSM8K,
            TRAIN=gsm8k / "train.parquet",
            TEST=gsm8k / "test.parquet",
            POLICY="Qwen/Qwen2.5-0.5B-Instruct",
        )
    )
    assert config.algorithm.adv_estimator == "gae"  # the default
    assert config.critic.model.path == "Qwen/Qwen2.5-0.5B-Instruct"
    assert config.critic.optim.lr == 1e-5
    assert (config.critic.ppo_micro_batch_size_per_gpu, config.critic.enable) == (4, None)
    assert config.reward.models == ["gsm8k"]
    assert config.trainer.logger == ["console"]

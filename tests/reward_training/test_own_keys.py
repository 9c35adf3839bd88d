"""Errors of parts that the policy's trainer shares name the keys that train-rm has."""

from __future__ import annotations

import pytest

from rmrl.errors import CheckpointError, ConfigError, RmrlError
from rmrl.reward_training.own_keys import own_keys


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("actor_rollout_ref.model.override_config.foo: no", "model.override_config.foo: no"),
        ("set critic.model.path to a model", "set model.path to a model"),
        ("actor_rollout_ref.actor.fsdp_config.fsdp_size=3", "fsdp_config.fsdp_size=3"),
        ("critic.optim.lr; critic.grad_clip=0", "optim.lr; trainer.grad_clip=0"),
        ("(actor_rollout_ref.actor.ppo_max_token_len_per_gpu)", "(trainer.max_tokens_per_gpu)"),
        (
            "choose another trainer.experiment_name or trainer.default_local_dir, or",
            "choose another out, or",
        ),
        ("or set trainer.max_actor_ckpt_to_keep, then", "or set trainer.max_ckpt_to_keep, then"),
        ("the policy and its critic. Free some", "the policy and its critic. Free some"),
        ("loss.critic.path and my_critic.x stay", "loss.critic.path and my_critic.x stay"),
    ],
)
def test_keys_are_those_of_train_rm(raised: str, told: str) -> None:
    with pytest.raises(ConfigError) as config, own_keys():
        raise ConfigError(["first", raised])
    assert config.value.problems == ["first", told]
    assert str(config.value) == str(ConfigError(["first", told]))
    with pytest.raises(CheckpointError) as checkpoint, own_keys():
        raise CheckpointError(raised)
    assert str(checkpoint.value) == told


def test_an_error_without_a_text_is_left_as_it_is() -> None:
    with pytest.raises(RmrlError) as error, own_keys():
        raise RmrlError(3)
    assert error.value.args == (3,)

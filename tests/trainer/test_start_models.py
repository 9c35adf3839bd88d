"""What each training engine is told: who stands beside the policy, and how many optimizer steps its
schedule has."""

from __future__ import annotations

from pathlib import Path

from rmrl.config.schema import Config
from rmrl.rewards.residency import Budget
from rmrl.trainer.check_algorithm import critic_settings, needs_critic
from rmrl.trainer.check_run import Checked
from rmrl.trainer.start_models import train_settings


def checked(config: Config, *, total_steps: int, reference: bool = False) -> Checked:
    return Checked(
        config=config,
        device="cpu",
        specs=(),
        engines=(),
        budget=Budget(),
        train_prompts=None,
        val_prompts=None,
        total_steps=total_steps,
        needs_reference=reference,
        critic=critic_settings(config),
        needs_critic=needs_critic(config),
        out_dir=Path("unused"),
    )


def config() -> Config:
    made = Config()
    made.actor_rollout_ref.model.path = "policy"
    made.data.train_batch_size = 10
    made.actor_rollout_ref.actor.ppo_mini_batch_size, made.actor_rollout_ref.actor.ppo_epochs = 4, 2
    return made


def test_a_schedule_counts_the_steps_in_which_its_model_learns() -> None:
    """3 mini-batches and 2 epochs a step; the policy rests in 5 of 20 steps, so its rate must reach
    its end in the other 15."""
    made = config()
    made.trainer.critic_warmup = 5
    settings = train_settings(checked(made, total_steps=20))
    assert {role: one.total_steps for role, one in settings.items()} == {
        "actor": 15 * 6,
        "critic": 20 * 6,
    }


def test_the_reference_waits_in_host_memory_where_its_own_key_says_so() -> None:
    """Under both strategies; what the policy does is its own affair."""
    made = config()
    made.algorithm.adv_estimator = "grpo"
    made.actor_rollout_ref.ref.param_offload = True
    settings = train_settings(checked(made, total_steps=1, reference=True))
    for kind in ("fsdp_config", "megatron"):
        assert getattr(settings["ref"].actor, kind).param_offload
        assert not getattr(settings["actor"].actor, kind).param_offload


def test_the_reference_has_no_adapters() -> None:
    made = config()
    made.actor_rollout_ref.model.lora_rank, made.algorithm.adv_estimator = 8, "grpo"
    settings = train_settings(checked(made, total_steps=1, reference=True))
    assert {role: one.model.lora_rank for role, one in settings.items()} == {"actor": 8, "ref": 0}

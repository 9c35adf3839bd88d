"""Which models can be cut as asked, over how many processes, and which may share them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.plain_checks import look_up
from rmrl.config.schema import Config
from rmrl.trainer.check_algorithm import critic_settings
from rmrl.trainer.check_layout import layout_problems

MODEL = {
    "model_type": "qwen2",
    "hidden_size": 96,
    "vocab_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 6,
    "intermediate_size": 96,
}


def model(folder: Path, **changes: Any) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**MODEL, **changes}))
    return str(folder)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    made = Config()
    made.trainer.n_gpus_per_node = 8
    made.actor_rollout_ref.model.path = model(tmp_path / "policy")
    made.actor_rollout_ref.actor.strategy = "megatron"
    return made


def problems(
    config: Config, changes: dict[str, Any], *, critic: bool = False, device: str = "cpu"
) -> list[str]:
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        setattr(look_up(config, section), name, value)
    return list(layout_problems(config, critic_settings(config) if critic else None, device=device))


ACTOR = "actor_rollout_ref.actor.megatron"
POOL = {
    "critic.pool": "values",
    "trainer.resource_pools": {"values": {"nnodes": 2, "n_gpus_per_node": 3}},
}


@pytest.mark.parametrize(
    "changes",
    [
        {f"{ACTOR}.tensor_model_parallel_size": 2, f"{ACTOR}.pipeline_model_parallel_size": 2},
        {
            f"{ACTOR}.tensor_model_parallel_size": 3
        },  # 8 processes: said by the check that needs no file
        {**POOL, "critic.strategy": "fsdp2", f"{ACTOR}.tensor_model_parallel_size": 2},
        {**POOL, "critic.megatron.pipeline_model_parallel_size": 3},
        {f"{ACTOR}.virtual_pipeline_model_parallel_size": 1, f"{ACTOR}.sequence_parallel": False},
        {
            "critic.megatron.virtual_pipeline_model_parallel_size": 1,
            f"{ACTOR}.tensor_model_parallel_size": 2,
            "critic.megatron.sequence_parallel": False,
        },
        {
            "actor_rollout_ref.actor.strategy": "fsdp",
            "critic.strategy": "fsdp2",
            "critic.megatron.tensor_model_parallel_size": 5,
        },
        {"critic.pool": "nowhere"},
    ],
)
def test_what_can_be_cut_as_asked(config: Config, changes: dict[str, Any]) -> None:
    assert problems(config, changes, critic=True) == []


@pytest.mark.parametrize(
    ("changes", "seen", "typed"),
    [
        ({f"{ACTOR}.tensor_model_parallel_size": 4}, f"{ACTOR}.tensor_model_parallel_size=4 does not divide", "parallel_size=2"),
        ({f"{ACTOR}.pipeline_model_parallel_size": 4}, "does not divide the model's num_hidden_layers=6", "divides 6"),
        ({**POOL, "critic.megatron.pipeline_model_parallel_size": 2, "critic.megatron.tensor_model_parallel_size": 2},
         "critic.megatron: tensor_model_parallel_size=2 x pipeline_model_parallel_size=2 x context_parallel_size=1 = 4 does not",
         "a multiple of 4"),
        ({**POOL, "critic.megatron.tensor_model_parallel_size": 3, "actor_rollout_ref.model.override_config": {"num_attention_heads": 6}},
         "critic.megatron.tensor_model_parallel_size=3 does not divide the model's num_key_value_heads=2", "parallel_size=1"),
        ({"critic.strategy": "fsdp2"}, "critic.strategy=fsdp2 and actor_rollout_ref.actor.strategy=megatron", "critic.pool=<pool>"),
        ({"critic.megatron.tensor_model_parallel_size": 2},
         "critic.megatron.tensor_model_parallel_size=2 and actor_rollout_ref.actor.megatron.tensor_model_parallel_size=1", "critic.pool=<"),
        ({"critic.model.lora_rank": 8}, "critic.model.lora_rank=8 with critic.strategy=megatron", "lora_rank=0"),
    ],
)  # fmt: skip
def test_what_cannot(config: Config, changes: dict[str, Any], seen: str, typed: str) -> None:
    found = problems(config, changes, critic=True)
    assert any(seen in problem and typed in problem for problem in found), found


def test_a_problem_is_said_once(config: Config) -> None:
    """The critic's checkpoint and layout are the policy's."""
    assert len(problems(config, {f"{ACTOR}.tensor_model_parallel_size": 4}, critic=True)) == 1


def test_a_critic_of_another_shape_is_looked_at_too(config: Config, tmp_path: Path) -> None:
    other = model(
        tmp_path / "critic", num_key_value_heads=8, num_attention_heads=12, num_hidden_layers=9
    )
    (problem,) = problems(
        config,
        {"critic.model.path": other, f"{ACTOR}.pipeline_model_parallel_size": 2},
        critic=True,
    )
    assert problem.startswith(
        "critic.megatron: pipeline_model_parallel_size=2 does not divide the model's"
        " num_hidden_layers=9"
    )


SHARING = "fsdp_config.ulysses_sequence_parallel_size"


@pytest.mark.parametrize("role", ["actor_rollout_ref.actor", "critic"])
def test_processes_share_rows_only_as_the_heads_allow(config: Config, role: str) -> None:
    """8 heads of attention; a critic that starts from the policy has a size of its own."""
    changes: dict[str, Any] = {
        "actor_rollout_ref.actor.strategy": "fsdp2",
        "trainer.n_gpus_per_node": 48,
    }
    assert problems(config, {**changes, f"{role}.{SHARING}": 8}, critic=True) == []
    assert problems(config, {f"{role}.{SHARING}": 0}, critic=True) == []  # its range is said apart
    (problem,) = problems(config, {f"{role}.{SHARING}": 3}, critic=True)
    assert problem == (
        f"{role}.{SHARING}=3 does not divide the 8 attention heads of this model: give a divisor of 8"
    )


def test_a_family_without_a_mapping_is_refused(config: Config, tmp_path: Path) -> None:
    (problem,) = problems(
        config,
        {"actor_rollout_ref.model.path": model(tmp_path / "other", model_type="gemma3_text")},
    )
    assert (
        "actor_rollout_ref.actor.strategy=megatron trains llama, qwen2, qwen3, qwen3_moe" in problem
    )
    assert "'gemma3_text'" in problem


def test_a_variant_that_would_not_compute_the_same_numbers_is_refused(config: Config) -> None:
    """Found before anything starts, not by the processes that build the model."""
    (problem,) = problems(
        config, {"actor_rollout_ref.model.override_config": {"hidden_act": "gelu"}}
    )
    assert "the model has the activation gelu" in problem


def test_what_is_not_installed_is_said(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmrl.backends.megatron.backend.PACKAGE", "megatron_that_is_not_there.core")
    (problem,) = problems(config, {})
    assert (
        problem
        == "actor_rollout_ref.actor.strategy=megatron needs megatron-core, which is not installed:"
        ' pip install "rmrl-toolkit[megatron]", or set strategy=fsdp2'
    )


def test_a_package_of_the_critic_alone_is_named_by_its_key(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmrl.backends.megatron.backend.PACKAGE", "megatron_that_is_not_there.core")
    strategies = {
        "actor_rollout_ref.actor.strategy": "fsdp2",
        "critic.strategy": "megatron",
        **POOL,
    }
    messages = problems(config, strategies, critic=True)
    assert messages[0].startswith("critic.strategy=megatron needs megatron-core")
    assert not any("actor.strategy" in message for message in messages)


@pytest.mark.parametrize(("actor", "critic"), [("fsdp2", "megatron"), ("megatron", "fsdp2")])
def test_strategies_that_cannot_share_processes_are_reported_once(
    config: Config, actor: str, critic: str
) -> None:
    strategies = {"actor_rollout_ref.actor.strategy": actor, "critic.strategy": critic}
    messages = problems(config, strategies, critic=True)
    shared = [message for message in messages if "share their processes" in message]
    assert len(shared) == 1
    assert shared[0].startswith(f"critic.strategy={critic} and ")


MIXTURE = {
    "model_type": "qwen3_moe",
    "head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}


def test_experts_and_tensors_are_not_both_cut_on_cpu(config: Config, tmp_path: Path) -> None:
    config.actor_rollout_ref.model.path = model(tmp_path / "mixture", **MIXTURE)
    changes = {f"{ACTOR}.tensor_model_parallel_size": 2, f"{ACTOR}.expert_model_parallel_size": 2}
    (said,) = problems(config, changes)
    assert "tensor_model_parallel_size=2 with expert_model_parallel_size=2 on CPU" in said
    assert problems(config, {}, device="cuda") == []
    assert problems(config, {f"{ACTOR}.tensor_model_parallel_size": 1}) == []

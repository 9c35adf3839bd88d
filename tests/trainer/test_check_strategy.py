"""Settings that a strategy does not read, and sizes that do not fit the processes."""

from __future__ import annotations

import pytest
import torch

from rmrl.config.schema import Config
from rmrl.trainer import check_strategy
from rmrl.trainer.check_strategy import (
    packing_advice,
    processor_advice,
    rounding_advice,
    strategy_problems,
)
from tests.config.test_check import config_with
from tests.packages import hide
from tests.support import fakes


def problems(config: Config) -> list[str]:
    return list(strategy_problems(config, device="cuda"))


def test_packing_through_the_slow_attention_is_advised_against_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
):
    hide(monkeypatch, "flash_attn")
    model = {"actor_rollout_ref.model.use_remove_padding": True}
    whole = {**model, "actor_rollout_ref.actor.fsdp_config.param_dtype": None}
    (line,) = packing_advice(config_with(**whole), device="cuda")
    assert "flex attention" in line
    assert "set fsdp_config.param_dtype=bfloat16" in line
    half = {**model, "actor_rollout_ref.actor.fsdp_config.param_dtype": "bfloat16"}
    assert list(packing_advice(config_with(**half), device="cuda")) == []  # torch's own kernel
    assert list(packing_advice(config_with(**whole), device="cpu")) == []
    assert list(packing_advice(config_with(**whole, **MEGATRON), device="cuda")) == []


def test_bfloat16_on_a_processor_without_it_is_advised_against(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def advice(device: str = "cpu", **settings: object) -> list[str]:
        named = {key.replace("__", "."): value for key, value in settings.items()}
        return list(processor_advice(config_with(**named), device=device))

    monkeypatch.setattr(check_strategy, "computes_bfloat16", lambda: False)
    rollout, compute = "actor_rollout_ref.rollout.dtype", f"{ACTOR}.fsdp_config.param_dtype"
    (line,) = advice()  # the defaults
    assert line.endswith(f"add {rollout}=float32 {compute}=null")
    (line,) = advice(**{rollout: "float32"})
    assert line.endswith(f"add {compute}=null")
    (line,) = advice(**MEGATRON)
    assert line.endswith(f"add {rollout}=float32")
    assert advice(**{rollout: "float32", compute: None}) == advice("cuda") == []
    monkeypatch.setattr(check_strategy, "computes_bfloat16", lambda: True)
    assert advice() == []


def test_weights_in_bfloat16_that_small_steps_leave_as_they_are_are_told():
    half = {f"{ACTOR}.fsdp_config.model_dtype": "bfloat16"}
    (line,) = rounding_advice(config_with(**half))  # of lr 1e-6
    assert "weights of 0.0005 and more stay as they are" in line
    assert "set model_dtype=float32" in line
    from_here = torch.tensor([2.0**-11, 0.001, 0.02], dtype=torch.bfloat16)
    below = torch.tensor([2.0**-12, 0.0004], dtype=torch.bfloat16)
    assert torch.equal(from_here + 1e-6, from_here)
    assert not (below + 1e-6 == below).any()
    for other in (
        {f"{ACTOR}.optim.lr": 1e-4},
        {"actor_rollout_ref.model.lora_rank": 8},
        MEGATRON,
        {f"{ACTOR}.fsdp_config.model_dtype": "float32"},
    ):
        assert list(rounding_advice(config_with(**half | other))) == []


def test_layers_are_compiled_only_where_there_is_a_compiler(monkeypatch: pytest.MonkeyPatch):
    compiled = config_with(**{"actor_rollout_ref.actor.fsdp_config.compile_layers": True})
    hide(monkeypatch, "triton")
    (problem,) = problems(compiled)
    assert "fsdp_config.compile_layers=true needs triton" in problem
    assert "pip install triton" in problem
    assert problems(config_with()) == []


def test_activations_are_offloaded_with_gradient_checkpointing_alone():
    model = "actor_rollout_ref.model"
    offloads = {f"{model}.enable_activation_offload": True}
    assert problems(config_with(**offloads)) == []
    whole = {**offloads, f"{model}.enable_gradient_checkpointing": False}
    (problem,) = problems(config_with(**whole))
    assert f"set {model}.enable_gradient_checkpointing=true" in problem
    (problem,) = problems(config_with(**offloads, **MEGATRON))
    assert "has no effect with actor_rollout_ref.actor.strategy=megatron" in problem


def test_energies_need_a_backend_that_states_them():
    of_ones_own = {"actor_rollout_ref.actor.strategy": "tests.contracts.toy_parts:Ranked"}
    energies = {"algorithm.adv_estimator": "optimal_token_baseline"}
    assert problems(config_with(**of_ones_own)) == []
    for strategy in ("fsdp", "fsdp2", "megatron", fakes.BACKEND):
        assert problems(config_with(**energies, **{f"{ACTOR}.strategy": strategy})) == []
    (problem,) = problems(config_with(**energies, **of_ones_own))
    assert "actor.strategy=tests.contracts.toy_parts:Ranked does not state" in problem
    assert "use strategy=fsdp2, or adv_estimator=opo" in problem
    only_validates = {"trainer.val_only": True}
    assert problems(config_with(**energies, **of_ones_own, **only_validates)) == []


MEGATRON = {"actor_rollout_ref.actor.strategy": "megatron"}
ACTOR = "actor_rollout_ref.actor"
SHARING = "fsdp_config.ulysses_sequence_parallel_size"


def test_a_sound_layout_has_no_problems():
    sizes = {
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2,
        "virtual_pipeline_model_parallel_size": 2,
    }
    changes = {f"{ACTOR}.megatron.{name}": size for name, size in sizes.items()}
    assert (
        problems(config_with(**MEGATRON, **changes, **{f"{ACTOR}.megatron.dtype": "float32"})) == []
    )
    assert (
        problems(
            config_with(
                **{"critic.strategy": "megatron", "critic.megatron.tensor_model_parallel_size": 2}
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("changes", "seen", "typed"),
    [
        ({"tensor_model_parallel_size": 3}, "tensor_model_parallel_size=3 x pipeline", "3 processes (trainer.nnodes x tra"),
        ({"tensor_model_parallel_size": 3}, "= 3 does not divide the 16 training processes", "lower them"),
        ({"pipeline_model_parallel_size": 4, "expert_model_parallel_size": 8}, "does not divide the 4 data-parallel", "size=4"),
        ({"virtual_pipeline_model_parallel_size": 2}, "=2 with pipeline_model_parallel_size=1", "pipeline_model_parallel_size=2 or more"),
        ({"context_parallel_size": 0}, "context_parallel_size=0", "at least 1"),
        (
            {"override_transformer_config": {"expert_model_parallel_size": 2}},
            "override_transformer_config.expert_model_parallel_size", "use actor_rollout_ref.actor.megatron.expert_model_parallel_size",
        ),
        ({"override_transformer_config": {"bf16": True}}, "override_transformer_config.bf16", "use actor_rollout_ref.actor.megatron.dtype"),
        (
            {"override_ddp_config": {"use_distributed_optimizer": False}},
            "override_ddp_config.use_distributed", "use actor_rollout_ref.actor.megatron.use_distributed_optimizer",
        ),
    ],
)  # fmt: skip
def test_one_problem_of_a_layout_one_sentence(changes: dict[str, object], seen: str, typed: str):
    """On two machines of 8."""
    entries = {f"{ACTOR}.megatron.{name}": value for name, value in changes.items()}
    (problem,) = problems(config_with(**MEGATRON, **entries, **{"trainer.nnodes": 2}))
    assert problem.startswith(f"{ACTOR}.megatron")
    assert seen in problem
    assert typed in problem


@pytest.mark.parametrize(
    ("changes", "seen", "typed"),
    [
        ({**MEGATRON, f"{ACTOR}.fsdp_config.param_dtype": None}, f"{ACTOR}.fsdp_config.param_dtype=null has no effect", "megatron.dtype"),
        ({**MEGATRON, f"{ACTOR}.fsdp_config.optimizer_offload": True}, "optimizer_offload=True has", f"{ACTOR}.megatron.optimizer_offload"),
        ({**MEGATRON, f"{ACTOR}.fsdp_config.reduce_dtype": "bfloat16"}, "reduce_dtype=bfloat16 has no effect", "leave it out"),
        ({**MEGATRON, f"{ACTOR}.{SHARING}": 2}, "size=2 has no effect", "megatron.context_par"),
        ({**MEGATRON, "critic.fsdp_config.fsdp_size": 2}, "critic.fsdp_config.fsdp_size=2", "use critic.megatron.tensor_model"),
        ({"critic.strategy": "megatron", "critic.fsdp_config.param_offload": True}, "critic.fsdp_config.param_o", "critic.megatron.param_"),
        ({f"{ACTOR}.megatron.param_offload": True}, "no effect with actor_rollout_ref.actor.strategy=fsdp2", "set strategy=megatron"),
        ({"critic.megatron.context_parallel_size": 2}, "critic.megatron.context_parallel_size=2 has no effect", "set strategy=megatron"),
        ({**MEGATRON, "critic.strategy": "fsdp", "critic.megatron.dtype": "float32"}, "with critic.strategy=fsdp", "leave it out"),
        ({**MEGATRON, "actor_rollout_ref.model.lora_rank": 8}, "model.lora_rank=8 with actor_rollout_ref.actor.strategy=me", "lora_rank=0"),
        ({**MEGATRON, "actor_rollout_ref.model.attn_implementation": "flex_attention"}, "flex_attention has no effect", "leave it out"),
    ],
)  # fmt: skip
def test_what_another_strategy_would_read_is_never_ignored_silently(
    changes: dict[str, object], seen: str, typed: str
):
    (problem,) = problems(config_with(**changes))
    assert seen in problem
    assert typed in problem


MODEL = "actor_rollout_ref.model"
OTHERS = "=2 computes attention with varlen, "


@pytest.mark.parametrize(
    ("changes", "starts", "typed"),
    [
        ({"trainer.n_gpus_per_node": 3}, "=2 does not divide the 3", "a divisor of 3"),
        ({f"{ACTOR}.fsdp_config.compile_layers": True}, "=2 with", "leave out one"),
        ({f"{MODEL}.share_prompts": True}, "=2 packs rows", "leave out share_prompts"),
        ({f"{MODEL}.attn_implementation": "sdpa"}, OTHERS + "not with sdpa", "leave out attn"),
        ({f"{ACTOR}.fsdp_config.param_dtype": None}, OTHERS + "which", "param_dtype=bfloat16"),
    ],
)
def test_processes_that_cannot_share_rows_are_told_why(
    changes: dict[str, object], starts: str, typed: str
):
    pairs = {"trainer.n_gpus_per_node": 4, f"{ACTOR}.{SHARING}": 2}
    assert problems(config_with(**pairs)) == []
    problem, *_ = problems(config_with(**{**pairs, **changes}))
    assert problem.startswith(f"{ACTOR}.{SHARING}{starts}")
    assert typed in problem


def test_a_backend_that_does_not_state_what_it_reads_takes_all():
    changes = {f"{ACTOR}.megatron.param_offload": True, f"{ACTOR}.fsdp_config.fsdp_size": 2}
    strategy = {f"{ACTOR}.strategy": "tests.contracts.toy_parts:Ranked"}
    assert problems(config_with(**strategy, **changes)) == []

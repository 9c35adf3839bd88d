"""The structure of a model, what settings do to it, and the two heads. That it computes what
Hugging Face's does: test_weights.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.megatron.core import DistributedDataParallel, parallel_state
from rmrl.backends.megatron.cpu import adapted
from rmrl.backends.megatron.groups import join, leave
from rmrl.backends.megatron.heads import ResponseHead, ValueHead
from rmrl.backends.megatron.layers import RMSNorm
from rmrl.backends.megatron.model import MegatronModel, build_model, language_model
from rmrl.backends.process_group import leave_group
from rmrl.errors import ConfigError
from tests.backends.megatron.tiny import VOCABULARY, make_settings, write_tiny

ALONE = ProcessSettings()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """This process is a group of one; a folder with a tiny model of each family."""
    folder = tmp_path_factory.mktemp("models")
    for family in ("llama", "qwen2", "qwen3", "qwen3_moe"):
        write_tiny(folder / family, family, tied=family != "qwen3")
    write_tiny(folder / "reward", classifier=True)
    join(make_settings(folder / "llama"), ALONE)
    yield folder
    leave()
    leave_group()


def build(settings: TrainSettings) -> MegatronModel:
    return build_model(settings, *join(settings, ALONE))


def shapes(model: MegatronModel, part: str) -> dict[str, tuple[int, ...]]:
    """Parameters of the first chunk whose name contains `part`."""
    return {
        name: tuple(parameter.shape)
        for name, parameter in model.chunks[0].named_parameters()
        if part in name
    }


def test_a_tied_policy_has_no_head_of_its_own(alone: Path) -> None:
    model = build(make_settings(alone / "llama"))
    assert model.first_stage
    assert model.last_stage
    assert isinstance(model.head, ResponseHead)
    assert model.head.weight is None
    assert shapes(model, "output_layer") == {}
    embedding = model.chunks[0].embedding.word_embeddings.weight
    assert embedding.shape == (VOCABULARY, 64)
    with torch.no_grad():
        embedding.normal_()
    assert torch.equal(model.linear_head()(embedding[:3]), embedding[:3] @ embedding.T)


def test_parameters_of_each_family(alone: Path) -> None:
    # (4 query heads + 2 keys + 2 values) * 16 channels
    assert shapes(build(make_settings(alone / "qwen2")), "layers.3.self_attention.linear_qkv") == {
        "decoder.layers.3.self_attention.linear_qkv.weight": (128, 64),
        "decoder.layers.3.self_attention.linear_qkv.bias": (128,),
    }
    qwen3 = build(make_settings(alone / "qwen3"))
    assert shapes(qwen3, "layers.0.self_attention.q_") == {
        "decoder.layers.0.self_attention.q_layernorm.weight": (16,)
    }
    assert shapes(qwen3, "output_layer") == {"output_layer.weight": (VOCABULARY, 64)}
    experts = shapes(build(make_settings(alone / "qwen3_moe")), "layers.0.mlp")
    assert len(experts) == 1 + 4 * 2
    assert experts["decoder.layers.0.mlp.router.weight"] == (4, 64)
    assert experts["decoder.layers.0.mlp.experts.local_experts.3.linear_fc1.weight"] == (2 * 48, 64)


def test_all_parameters_have_the_dtype_of_the_settings(alone: Path) -> None:
    for family, role in [("qwen3_moe", "actor"), ("qwen2", "ref"), ("reward", "critic")]:
        model = build(make_settings(alone / family, role=role, dtype="bfloat16"))
        assert {parameter.dtype for parameter in model.chunks[0].parameters()} == {torch.bfloat16}
        assert model.config.bf16
    assert build(make_settings(alone / "llama")).config.params_dtype is torch.float32


def test_a_reference_is_frozen_and_has_no_gradient_buffers(alone: Path) -> None:
    model = build(make_settings(alone / "llama", role="ref"))
    assert model.modules == model.chunks
    assert not any(parameter.requires_grad for parameter in model.chunks[0].parameters())
    assert not model.chunks[0].training
    assert model.config.recompute_granularity is None


def test_a_policy_trains_with_gradient_buffers_in_float32(alone: Path) -> None:
    model = build(make_settings(alone / "llama", dtype="bfloat16"))
    assert [type(module) for module in model.modules] == [DistributedDataParallel]
    assert model.modules[0].module is model.chunks[0]
    assert {parameter.main_grad.dtype for parameter in model.chunks[0].parameters()} == {
        torch.float32
    }
    assert model.config.calculate_per_token_loss
    assert model.config.recompute_granularity == "full"
    assert (
        build(
            make_settings(alone / "llama", model={"enable_gradient_checkpointing": False})
        ).config.recompute_granularity
        is None
    )


def test_a_critic_has_a_zero_head_of_one_number(alone: Path) -> None:
    model = build(make_settings(alone / "reward", role="critic"))
    assert isinstance(model.head, ValueHead)
    assert shapes(model, "output_layer") == {"output_layer.weight": (1, 64)}
    with torch.no_grad():
        assert model.head.values(torch.ones(3, 64)).tolist() == [0.0, 0.0, 0.0]
        model.head.weight[0, :2] = torch.tensor([0.5, -2.0])
        assert model.head.values(
            torch.tensor([[1.0, 1.0], [4.0, 0.0]]).repeat(1, 32)[:, :64]
        ).shape == (2,)
        assert model.head.values(torch.eye(64)[:2].bfloat16()).tolist() == [0.5, -2.0]


def forward(model: MegatronModel, ids: Tensor) -> Tensor:
    with adapted():
        return model.modules[0](ids, torch.zeros_like(ids), None)


def randomise(model: MegatronModel) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.chunks[0].parameters():
            parameter.normal_(std=0.1)


def test_the_output_is_hidden_states_and_recomputing_changes_no_gradient(alone: Path) -> None:
    ids, gradients, outputs = torch.arange(14).view(2, 7), [], []
    for recompute in (
        {"enable_gradient_checkpointing": False},
        {"enable_gradient_checkpointing": True},
        {"gradient_checkpointing_every": 2},
    ):
        model = build(make_settings(alone / "qwen3", model=recompute))
        randomise(model)
        output = forward(model, ids)
        assert output.shape == (2, 7, 64)
        with adapted():
            output.square().sum().backward()
        outputs.append(output.detach())
        gradients.append(
            [parameter.main_grad.clone() for parameter in model.chunks[0].parameters()]
        )
    for output, of_parameters in zip(outputs[1:], gradients[1:], strict=True):
        assert torch.equal(output, outputs[0])
        for with_, without in zip(of_parameters, gradients[0], strict=True):
            assert torch.equal(with_, without)
    assert (
        sum(float(gradient.abs().sum()) > 0 for gradient in gradients[0]) == len(gradients[0]) - 1
    )  # all but the head's


def test_tokens_behind_a_position_do_not_reach_it(alone: Path) -> None:
    model = build(make_settings(alone / "llama", role="ref"))
    randomise(model)
    ids = torch.arange(10)[None]
    changed = ids.clone()
    changed[0, 6:] = 99
    assert torch.equal(forward(model, ids)[:, :6], forward(model, changed)[:, :6])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_rounds_as_hugging_face_does(alone: Path, dtype: torch.dtype) -> None:
    config = build(
        make_settings(alone / "llama", role="ref", dtype=str(dtype).removeprefix("torch."))
    ).config
    theirs = LlamaRMSNorm(48, eps=1e-5).to(dtype)
    with adapted():
        ours = RMSNorm(config, hidden_size=48, eps=1e-5)
    with torch.no_grad():
        theirs.weight.normal_()
        ours.weight.copy_(theirs.weight)
        x = torch.randn(200, 48).to(dtype)
        assert torch.equal(ours(x), theirs(x))


def test_saved_tensors_name_the_head_where_there_is_one(alone: Path) -> None:
    saved = {}
    for family, role in [("llama", "actor"), ("qwen3", "actor"), ("reward", "critic")]:
        model = build(make_settings(alone / family, role=role))
        with adapted():
            metadata = {
                "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)
            }
            saved[family] = model.chunks[0].sharded_state_dict(metadata=metadata)
    assert "output_layer.weight" not in saved["llama"]
    assert saved["qwen3"]["output_layer.weight"].global_shape == (VOCABULARY, 64)
    assert saved["reward"]["output_layer.weight"].global_shape == (1, 64)


def test_overrides_reach_the_configs(alone: Path) -> None:
    model = build(
        make_settings(
            alone / "llama",
            override_transformer_config={"recompute_num_layers": 2, "deterministic_mode": True},
            override_ddp_config={"overlap_grad_reduce": True, "bucket_size": 1000},
        )
    )
    assert model.config.recompute_num_layers == 2
    assert model.config.deterministic_mode
    assert model.modules[0].ddp_config.bucket_size == 1000
    assert model.config.no_sync_func == model.modules[0].no_sync


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        (
            {"override_transformer_config": {"recompute_granularty": "full"}},
            "recompute_granularty.*did you mean 'recompute_granularity'",
        ),
        (
            {"override_transformer_config": {"num_layers": 2}},
            "num_layers follows from the model's config.json",
        ),
        (
            {"override_transformer_config": {"sequence_parallel": True}},
            "sequence_parallel follows from",
        ),
        (
            {"override_transformer_config": {"moe_aux_loss_coeff": 0.1}},
            "moe_aux_loss_coeff cannot be used",
        ),
        (
            {"override_transformer_config": {"window_size": [4, 0]}},
            "window_size cannot be used: attention here is",
        ),
        (
            {"override_transformer_config": {"recompute_granularity": "some"}},
            "megatron-core refuses these entries",
        ),
        ({"override_ddp_config": {"bucket_sizes": 1}}, "bucket_sizes.*did you mean 'bucket_size'"),
        (
            {"override_ddp_config": {"use_distributed_optimizer": False}},
            "use_distributed_optimizer follows from",
        ),
        ({"override_ddp_config": {"overlap_param_gather": True}}, "published"),
        ({"dtype": "float16"}, "dtype=float16.*bfloat16 or float32"),
        ({"dtype": "bfloat"}, "not a dtype"),
    ],
)
def test_entries_that_cannot_work_are_errors_that_name_them(
    alone: Path, entries: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=f"actor_rollout_ref.actor.megatron.*{named}"):
        build(make_settings(alone / "llama", **entries))


def test_adapters_are_refused(alone: Path) -> None:
    with pytest.raises(ConfigError, match=r"model.lora_rank=8.*use strategy=fsdp2"):
        build(make_settings(alone / "llama", model={"lora_rank": 8}))


def test_the_language_model_is_for_its_config_alone(alone: Path) -> None:
    assert {
        parameter.device.type
        for parameter in language_model(make_settings(alone / "llama")).parameters()
    } == {"meta"}
    critic = language_model(make_settings(alone / "llama", role="critic"))
    assert type(critic).__name__ == "LlamaForSequenceClassification"
    assert critic.config.num_labels == 1


def test_a_second_engine_must_share_the_sizes(alone: Path) -> None:
    other = make_settings(alone / "reward", role="critic")
    assert join(other, ALONE) == join(make_settings(alone / "llama"), ALONE)
    process = ProcessSettings(world_size=1)
    with pytest.raises(ConfigError, match="tensor_model_parallel_size=2"):
        join(make_settings(alone / "llama", tensor_model_parallel_size=2), process)


def test_cpu_processes_must_not_see_a_gpu(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ConfigError, match=r"trainer.device=cpu.*CUDA_VISIBLE_DEVICES"):
        join(make_settings(alone / "llama"), ALONE)

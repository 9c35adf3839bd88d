"""Bytes of a model whose size is known to the parameter, under both strategies."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.config.schema import ActorConfig, FSDPConfig, MegatronConfig, ModelConfig
from rmrl.trainer.train_memory import (
    State,
    activation_bytes,
    frozen_bytes,
    layout,
    offloads_state,
    state,
    stays_bytes,
    waits_bytes,
)
from tests.trainer.test_plan import PARAMETERS

EMBEDDING = 1024 * 128


@pytest.fixture
def model(tiny_llama: Path) -> ModelConfig:
    return ModelConfig(path=str(tiny_llama))


def megatron(**entries: object) -> ActorConfig:
    return ActorConfig(strategy="megatron", megatron=MegatronConfig(**entries))


def test_sharded_training_holds_one_copy_of_everything(model: ModelConfig) -> None:
    for world in (1, 4):
        half = state(model, ActorConfig(fsdp_config=FSDPConfig(model_dtype="bfloat16")), world)
        assert half == State(
            weights=2 * PARAMETERS, gradients=2 * PARAMETERS, optimizer=4 * PARAMETERS
        )


def test_data_parallel_copies_hold_weights_and_gradients_and_share_the_optimizer(
    model: ModelConfig,
) -> None:
    """bfloat16 weights, float32 gradients, float32 master weights and two moments."""
    got = state(model, megatron(), 4)
    assert got == State(
        weights=4 * 2 * PARAMETERS, gradients=4 * 4 * PARAMETERS, optimizer=12 * PARAMETERS
    )
    assert got.total == (8 + 16 + 12) * PARAMETERS
    assert (
        state(model, megatron(use_distributed_optimizer=False), 4).optimizer == 4 * 12 * PARAMETERS
    )
    assert state(model, megatron(dtype="float32"), 4) == State(
        weights=4 * 4 * PARAMETERS, gradients=4 * 4 * PARAMETERS, optimizer=8 * PARAMETERS
    )


def test_processes_that_share_a_model_hold_one_copy_together(model: ModelConfig) -> None:
    assert state(model, megatron(tensor_model_parallel_size=4), 4).weights == 2 * PARAMETERS
    assert (
        state(model, megatron(tensor_model_parallel_size=2, context_parallel_size=2), 4).weights
        == 2 * 2 * PARAMETERS
    )


def test_both_ends_of_a_pipeline_hold_the_tied_embedding(model: ModelConfig) -> None:
    """The larger of two stages has half of the layers and all of the vocabulary; both are taken to
    be as large."""
    stage = (PARAMETERS - EMBEDDING) // 2 + EMBEDDING
    assert state(model, megatron(pipeline_model_parallel_size=2), 2).weights == 2 * 2 * stage
    assert frozen_bytes(model, megatron(pipeline_model_parallel_size=2), 2) == 2 * 2 * stage


def test_experts_are_dealt_to_expert_parallel_processes(model: ModelConfig) -> None:
    """2 layers x 4 experts x 3 matrices of 128 x 16; each of two processes holds all else and half
    of them."""
    model.override_config = {
        "model_type": "qwen3_moe",
        "num_experts": 4,
        "moe_intermediate_size": 16,
    }
    experts = 2 * 4 * 3 * 128 * 16
    assert state(model, megatron(expert_model_parallel_size=2), 2).weights == 2 * 2 * (
        PARAMETERS - experts // 2
    )
    assert state(model, megatron(expert_model_parallel_size=2), 2).optimizer == 12 * PARAMETERS


def test_what_stays_on_the_device_and_what_waits_in_host_memory(model: ModelConfig) -> None:
    assert not offloads_state(megatron())
    held = state(model, megatron(), 2)
    for entries, stays, waits in (
        ({"param_offload": True}, held.gradients + held.optimizer, held.weights),
        ({"grad_offload": True}, held.weights + held.optimizer, 0),  # freed, not kept
        ({"optimizer_offload": True}, held.weights + held.gradients, held.optimizer),
        (
            {"param_offload": True, "grad_offload": True, "optimizer_offload": True},
            0,
            held.weights + held.optimizer,
        ),
    ):
        trained = megatron(**entries)
        assert offloads_state(trained)
        assert (stays_bytes(model, trained, 2), waits_bytes(model, trained, 2)) == (stays, waits)


def test_sharded_training_moves_what_is_named_and_has_no_gradients_between_phases(
    model: ModelConfig,
) -> None:
    weights, moments = 4 * PARAMETERS, 8 * PARAMETERS
    for entries, stays, waits in (
        ({"param_offload": True}, moments, weights),
        ({"optimizer_offload": True}, weights, moments),
        ({"param_offload": True, "optimizer_offload": True}, 0, weights + moments),
    ):
        trained = ActorConfig(fsdp_config=FSDPConfig(**entries))
        assert offloads_state(trained)
        assert (stays_bytes(model, trained, 2), waits_bytes(model, trained, 2)) == (stays, waits)


def test_activations_are_split_along_the_sequence(model: ModelConfig) -> None:
    """The head is the largest: 12 bytes of each logit, three numbers of hidden size for a token."""
    inputs, hidden, logits = 4096 * 2 * 128 * 2, 4096 * 128 * 6, 4096 * 1024 * 12
    for entries, along, tensor in (
        ({}, 1, 1),
        ({"context_parallel_size": 2}, 2, 1),
        ({"tensor_model_parallel_size": 2}, 2, 2),
        ({"tensor_model_parallel_size": 2, "sequence_parallel": False}, 1, 2),
    ):
        got = activation_bytes(model, megatron(**entries), 4, tokens=4096)
        assert got == (inputs + hidden) // along + logits // tensor


def test_activations_are_the_layers_inputs_and_one_layer_or_all_layers(model: ModelConfig) -> None:
    """2 layers of width 128 and 256 in bf16: a layer keeps 14 and 4 numbers of these for a token,
    and computes 2 of the second in its backward pass. 10 tokens have few logits."""
    kept = 2 * (14 * 128 + 4 * 256)
    computed = 2 * 2 * 256
    model.override_config = {"vocab_size": 16}
    assert activation_bytes(model, megatron(), 1, tokens=10) == 10 * (2 * 128 * 2 + kept + computed)
    model.gradient_checkpointing_every = 2
    half = 128 * 2 + kept + kept + computed
    assert activation_bytes(model, megatron(), 1, tokens=10) == 10 * half
    model.enable_gradient_checkpointing = False
    assert activation_bytes(model, megatron(), 1, tokens=10) == 10 * (2 * kept + computed)


def test_sharded_training_gathers_two_layers_and_the_root(model: ModelConfig) -> None:
    """One token: all but nothing are weights in bf16. Either a layer's backward pass (root, two
    layers, gradients of head and layer, the layer's in float32) or the root's sum of gradients is
    the largest; LoRA has no such gradients."""
    token = activation_bytes(model, megatron(), 1, tokens=1)
    layer = (PARAMETERS - EMBEDDING) // 2
    in_backward = 2 * (2 * EMBEDDING + 3 * layer) + 4 * layer
    summed = EMBEDDING * (2 + 2 + 4) + EMBEDDING * 4 // 4
    got = activation_bytes(model, ActorConfig(), 4, tokens=1)
    assert max(in_backward, summed) <= got <= max(in_backward, summed) + token
    model.lora_rank = 8
    got = activation_bytes(model, ActorConfig(), 4, tokens=1)
    assert 0 <= got - 2 * (EMBEDDING + 2 * layer) <= token


def test_processes_that_share_rows_hold_a_part_of_the_activations(model: ModelConfig) -> None:
    """All that a token needs is linear in a process's tokens, but for a slice with logits."""
    model.override_config = {"vocab_size": 16}
    shared = ActorConfig(fsdp_config=FSDPConfig(ulysses_sequence_parallel_size=4))

    def of_tokens(trained: ActorConfig, tokens: int) -> int:
        return activation_bytes(model, trained, 8, tokens=tokens)

    assert of_tokens(shared, 2**20) == of_tokens(ActorConfig(), 2**18)


def test_slices_of_logits_add_the_sum_of_the_head_gradient(model: ModelConfig) -> None:
    whole = activation_bytes(model, megatron(), 1, tokens=4096, slice_elements=2**22)
    sliced = activation_bytes(model, megatron(), 1, tokens=4096, slice_elements=2**21)
    assert whole - sliced == 2**21 * 12 - EMBEDDING * 4


def test_the_plan_names_the_layout() -> None:
    assert layout(ActorConfig(), 4) == "fsdp2 x4"
    shared = ActorConfig(fsdp_config=FSDPConfig(ulysses_sequence_parallel_size=2))
    assert layout(shared, 4) == "fsdp2 x4, 2 share a row"
    assert (
        layout(megatron(tensor_model_parallel_size=2, pipeline_model_parallel_size=2), 8)
        == "megatron x8 tp2 pp2"
    )

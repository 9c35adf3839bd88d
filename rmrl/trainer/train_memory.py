"""Bytes of a model's weights, gradients and optimizer state while it trains, by strategy; estimated
from checkpoint headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmrl.backends.megatron.sizes import Sizes, expert_count
from rmrl.config.schema import FSDPConfig, MegatronConfig, ModelConfig, TrainedConfig
from rmrl.models.checkpoint_inspect import parameter_count, read_config

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_FLOAT32 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Bytes of all processes together."""

    weights: int
    gradients: int
    optimizer: int
    """AdamW's two moments, and float32 master weights where the weights have another dtype."""

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer


def state(model: ModelConfig, trained: TrainedConfig, processes: int) -> State:
    """Of a model that trains in so many processes."""
    if trained.strategy == "megatron":
        return _megatron_state(model, trained, processes)
    count, size = (
        parameter_count(str(model.path)),
        _DTYPE_BYTES.get(trained.fsdp_config.model_dtype, 4),
    )
    if model.lora_rank:  # the weights are alone, and what trains is small
        return State(weights=count * size, gradients=0, optimizer=0)
    return State(weights=count * size, gradients=count * size, optimizer=count * size * 2)


def _megatron_state(model: ModelConfig, trained: TrainedConfig, processes: int) -> State:
    megatron, sizes = trained.megatron, _sizes(trained, processes)
    whole, resident = _parameters(model, sizes)
    size = _DTYPE_BYTES.get(megatron.dtype, 4)
    stepped = whole if megatron.use_distributed_optimizer else resident
    return State(
        weights=resident * size,
        gradients=resident * _FLOAT32,
        optimizer=stepped * _FLOAT32 * (2 if size == _FLOAT32 else 3),
    )


def frozen_bytes(model: ModelConfig, trained: TrainedConfig, processes: int) -> int:
    """Of the reference: weights alone, in the dtype of compute; of all processes together."""
    if trained.strategy == "megatron":
        return _parameters(model, _sizes(trained, processes))[1] * _DTYPE_BYTES.get(
            trained.megatron.dtype, 4
        )
    fsdp = trained.fsdp_config
    return parameter_count(str(model.path)) * _DTYPE_BYTES.get(
        fsdp.param_dtype or fsdp.model_dtype, 4
    )


def _parameters(model: ModelConfig, sizes: Sizes) -> tuple[int, int]:
    """(one copy of the model, what all processes hold together).

    Every stage is taken to hold an embedding, as the first and the last of a pipeline do, which are
    the largest.
    """
    shape, count = _shape(model), parameter_count(str(model.path))
    embedding = int(shape.get("vocab_size", 0)) * int(shape.get("hidden_size", 0))
    tied = bool(shape.get("tie_word_embeddings", False))
    whole = (
        count if sizes.pipeline == 1 else count + (sizes.pipeline - (1 if tied else 2)) * embedding
    )
    experts = _expert_parameters(shape) if sizes.expert > 1 else 0
    return whole, (whole - experts + experts // sizes.expert) * sizes.context * sizes.data


def _expert_parameters(shape: dict[str, Any]) -> int:
    layers, hidden, ffn = (
        int(shape.get(name) or 0)
        for name in ("num_hidden_layers", "hidden_size", "moe_intermediate_size")
    )
    return layers * (expert_count(shape) or 0) * 3 * hidden * ffn


def offloads_state(trained: TrainedConfig) -> bool:
    """Some of the training state leaves the device between phases."""
    if trained.strategy == "megatron":
        megatron = trained.megatron
        return megatron.param_offload or megatron.grad_offload or megatron.optimizer_offload
    return trained.fsdp_config.param_offload or trained.fsdp_config.optimizer_offload


def stays_bytes(model: ModelConfig, trained: TrainedConfig, processes: int) -> int:
    """What stays on the devices between phases where `offloads_state`; of all processes
    together."""
    held, offloads = state(model, trained, processes), _offloads(trained)
    # Sharded training has no gradients between phases, megatron keeps their buffers.
    gradients = (
        held.gradients
        if trained.strategy == "megatron" and not trained.megatron.grad_offload
        else 0
    )
    return (
        held.weights * (not offloads.param_offload)
        + gradients
        + held.optimizer * (not offloads.optimizer_offload)
    )


def waits_bytes(model: ModelConfig, trained: TrainedConfig, processes: int) -> int:
    """What waits in host memory between phases where `offloads_state`; of all processes together.
    Gradients are freed."""
    held, offloads = state(model, trained, processes), _offloads(trained)
    return held.weights * offloads.param_offload + held.optimizer * offloads.optimizer_offload


def _offloads(trained: TrainedConfig) -> MegatronConfig | FSDPConfig:
    """Where it stands what is offloaded."""
    return trained.megatron if trained.strategy == "megatron" else trained.fsdp_config


def activation_bytes(
    model: ModelConfig, trained: TrainedConfig, processes: int, *, tokens: int
) -> int:
    """Of one micro-batch of `tokens` in bf16, in each process: the layers' inputs with gradient
    checkpointing plus one layer, all layers without; and a chunk of logits.

    A stage of a pipeline has fewer layers and as many more micro-batches under way.
    """
    shape = _shape(model)
    hidden, layers, vocab = (
        int(shape.get(key, 0)) for key in ("hidden_size", "num_hidden_layers", "vocab_size")
    )
    per_layer = 34 * hidden * 2
    kept = (
        layers * hidden * 2 + per_layer
        if model.enable_gradient_checkpointing
        else layers * per_layer
    )
    along, tensor = 1, 1
    if trained.strategy == "megatron":
        sizes = _sizes(trained, processes)
        along, tensor = (
            sizes.context * (sizes.tensor if sizes.sequence_parallel else 1),
            sizes.tensor,
        )
    return tokens * kept // along + min(tokens, 1024) * vocab * 4 * 3 // tensor


def layout(trained: TrainedConfig, processes: int) -> str:
    """For the plan: the strategy and over how many processes."""
    if trained.strategy != "megatron":
        return f"{trained.strategy} x{processes}"
    sizes = _sizes(trained, processes)
    named = {"tp": sizes.tensor, "pp": sizes.pipeline, "cp": sizes.context, "ep": sizes.expert}
    return " ".join(
        [f"megatron x{processes}", *(f"{name}{size}" for name, size in named.items() if size > 1)]
    )


def _sizes(trained: TrainedConfig, processes: int) -> Sizes:
    return Sizes.of(trained.megatron, processes, section="actor_rollout_ref.actor")


def _shape(model: ModelConfig) -> dict[str, Any]:
    return {**read_config(str(model.path)), **model.override_config}

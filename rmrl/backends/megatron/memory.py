"""Bytes for a model that trains under Megatron, estimated from its checkpoint's headers. Imports
neither torch nor megatron."""

from __future__ import annotations

from typing import Any

from rmrl.backends.descriptor import Offloads, State
from rmrl.backends.megatron.sizes import Sizes, expert_count
from rmrl.config.schema import ModelConfig, TrainedConfig
from rmrl.models.checkpoint_inspect import parameter_count, read_config

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_FLOAT32 = 4


class MegatronMemory:
    """Data-parallel copies hold weights and gradients each. The distributed optimizer shares its
    state among them."""

    def state(self, model: ModelConfig, trained: TrainedConfig, processes: int) -> State:
        megatron = trained.megatron
        whole, resident = _parameters(model, _sizes(trained, processes))
        size = _DTYPE_BYTES.get(megatron.dtype, 4)
        stepped = whole if megatron.use_distributed_optimizer else resident
        return State(
            weights=resident * size,
            gradients=resident * _FLOAT32,
            optimizer=stepped * _FLOAT32 * (2 if size == _FLOAT32 else 3),
        )

    def frozen_bytes(self, model: ModelConfig, trained: TrainedConfig, processes: int) -> int:
        _, resident = _parameters(model, _sizes(trained, processes))
        return resident * _DTYPE_BYTES.get(trained.megatron.dtype, 4)

    def offloads(self, trained: TrainedConfig) -> Offloads:
        """Gradient buffers stay between phases unless they are offloaded."""
        megatron = trained.megatron
        return Offloads(
            weights=megatron.param_offload,
            gradients=megatron.grad_offload,
            optimizer=megatron.optimizer_offload,
        )

    def gathered(self, trained: TrainedConfig) -> int:  # noqa: ARG002
        return 0

    def activation_shares(self, trained: TrainedConfig, processes: int) -> tuple[int, int]:
        sizes = _sizes(trained, processes)
        along = sizes.context * (sizes.tensor if sizes.sequence_parallel else 1)
        return along, sizes.tensor

    def layout(self, trained: TrainedConfig, processes: int) -> str:
        sizes = _sizes(trained, processes)
        named = {"tp": sizes.tensor, "pp": sizes.pipeline, "cp": sizes.context, "ep": sizes.expert}
        cuts = [f"{name}{size}" for name, size in named.items() if size > 1]
        return " ".join([f"megatron x{processes}", *cuts])


def _parameters(model: ModelConfig, sizes: Sizes) -> tuple[int, int]:
    """Return how many parameters one model copy has, and all processes together.

    Every stage is taken to hold an embedding, as a pipeline's first and last do, which are the
    largest.
    """
    shape: dict[str, Any] = {**read_config(str(model.path)), **model.override_config}
    whole = parameter_count(str(model.path))
    if sizes.pipeline > 1:
        embedding = int(shape.get("vocab_size", 0)) * int(shape.get("hidden_size", 0))
        tied = bool(shape.get("tie_word_embeddings", False))
        whole += (sizes.pipeline - (1 if tied else 2)) * embedding
    experts = 0
    if sizes.expert > 1:
        names = ("num_hidden_layers", "hidden_size", "moe_intermediate_size")
        layers, hidden, ffn = [int(shape.get(name) or 0) for name in names]
        experts = layers * (expert_count(shape) or 0) * 3 * hidden * ffn
    return whole, (whole - experts + experts // sizes.expert) * sizes.context * sizes.data


def _sizes(trained: TrainedConfig, processes: int) -> Sizes:
    return Sizes.of(trained.megatron, processes, section="actor_rollout_ref.actor")

"""Bytes of a model's weights, gradients, optimizer state and activations while it trains, as its
backend estimates them from checkpoint headers."""

from __future__ import annotations

from rmrl.backends import backend_of
from rmrl.backends.descriptor import Memory, State
from rmrl.config.schema import ModelConfig, TrainedConfig
from rmrl.models.checkpoint_inspect import read_config

__all__ = [
    "State",
    "activation_bytes",
    "frozen_bytes",
    "layout",
    "offloads_state",
    "state",
    "stays_bytes",
    "waits_bytes",
]


def _memory(trained: TrainedConfig) -> Memory:
    return backend_of(trained.strategy).memory


def state(model: ModelConfig, trained: TrainedConfig, processes: int) -> State:
    """Of a model that trains in so many processes."""
    return _memory(trained).state(model, trained, processes)


def frozen_bytes(model: ModelConfig, trained: TrainedConfig, processes: int) -> int:
    """Of the reference: weights alone, in the dtype of compute; of all processes together."""
    return _memory(trained).frozen_bytes(model, trained, processes)


def offloads_state(trained: TrainedConfig) -> bool:
    """Some of the training state leaves the device between phases."""
    return _memory(trained).offloads(trained).any


def stays_bytes(model: ModelConfig, trained: TrainedConfig, processes: int) -> int:
    """What stays on the devices between phases where `offloads_state`; of all processes
    together."""
    held = state(model, trained, processes)
    offloads = _memory(trained).offloads(trained)
    return (
        held.weights * (not offloads.weights)
        + held.gradients * (offloads.keeps_gradients and not offloads.gradients)
        + held.optimizer * (not offloads.optimizer)
    )


def waits_bytes(model: ModelConfig, trained: TrainedConfig, processes: int) -> int:
    """What waits in host memory between phases where `offloads_state`; of all processes together.
    Gradients are freed."""
    held = state(model, trained, processes)
    offloads = _memory(trained).offloads(trained)
    return held.weights * offloads.weights + held.optimizer * offloads.optimizer


def activation_bytes(
    model: ModelConfig, trained: TrainedConfig, processes: int, *, tokens: int
) -> int:
    """Of one micro-batch of `tokens` in bf16, in each process: the layers' inputs with gradient
    checkpointing plus one layer, all layers without; and a chunk of logits.

    A stage of a pipeline has fewer layers and as many more micro-batches under way.
    """
    shape = {**read_config(str(model.path)), **model.override_config}
    hidden, layers, vocab = (
        int(shape.get(key, 0)) for key in ("hidden_size", "num_hidden_layers", "vocab_size")
    )
    per_layer = 34 * hidden * 2
    kept = (
        layers * hidden * 2 + per_layer
        if model.enable_gradient_checkpointing
        else layers * per_layer
    )
    along, tensor = _memory(trained).activation_shares(trained, processes)
    return tokens * kept // along + min(tokens, 1024) * vocab * 4 * 3 // tensor


def layout(trained: TrainedConfig, processes: int) -> str:
    """For the plan: the strategy and over how many processes."""
    return _memory(trained).layout(trained, processes)

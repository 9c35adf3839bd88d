"""Bytes of a model's weights, gradients, optimizer state and activations while it trains, as its
backend estimates them from checkpoint headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmrl.backends import backend_of
from rmrl.backends.descriptor import Memory, State
from rmrl.config.schema import ModelConfig, TrainedConfig
from rmrl.models.checkpoint_inspect import parameter_count, read_config
from rmrl.models.slice_sizes import SLICE_BYTES, SLICE_ELEMENTS

__all__ = [
    "State",
    "activation_bytes",
    "frozen_bytes",
    "gathered",
    "layout",
    "lives_in_host_memory",
    "offloads_state",
    "state",
    "stays_bytes",
    "waits_bytes",
]

_FLOAT32 = 4


def _memory(trained: TrainedConfig) -> Memory:
    return backend_of(trained.strategy).memory


def state(model: ModelConfig, trained: TrainedConfig, processes: int) -> State:
    """Return the bytes of a model that trains in `processes` processes."""
    return _memory(trained).state(model, trained, processes)


def frozen_bytes(model: ModelConfig, trained: TrainedConfig, processes: int) -> int:
    """Return the bytes of the reference in all processes together: weights alone, in the dtype of
    compute."""
    return _memory(trained).frozen_bytes(model, trained, processes)


def offloads_state(trained: TrainedConfig) -> bool:
    """Return whether some of the training state leaves the device between phases."""
    return _memory(trained).offloads(trained).any


def lives_in_host_memory(trained: TrainedConfig) -> bool:
    """Return whether the training state is on no device, while the model trains as well."""
    return _memory(trained).offloads(trained).always


def stays_bytes(model: ModelConfig, trained: TrainedConfig, processes: int) -> int:
    """Return the bytes that stay on the devices between phases where `offloads_state`; of all
    processes together."""
    size = state(model, trained, processes)
    offloads = _memory(trained).offloads(trained)
    if offloads.always:
        return 0
    stays = 0
    if not offloads.weights:
        stays += size.weights
    if offloads.keeps_gradients and not offloads.gradients:
        stays += size.gradients
    if not offloads.optimizer:
        stays += size.optimizer
    return stays


def waits_bytes(model: ModelConfig, trained: TrainedConfig, processes: int) -> int:
    """Return the bytes that wait in host memory between phases where `offloads_state`; of all
    processes together. Gradients are freed, but for state that lives there."""
    size = state(model, trained, processes)
    offloads = _memory(trained).offloads(trained)
    if offloads.always:
        return size.total
    return size.weights * offloads.weights + size.optimizer * offloads.optimizer


def activation_bytes(
    model: ModelConfig,
    trained: TrainedConfig,
    processes: int,
    *,
    tokens: int,
    slice_elements: int = SLICE_ELEMENTS,
) -> int:
    """Return the bytes in each process beside weights, gradients and optimizer state while a
    micro-batch of `tokens` in bf16 trains; `slice_elements`: logits computed at once.

    The inputs of the layers that recompute (all that the others keep) stay while the
    most of three follows: the output head, the backward pass of a layer, the summing up of the
    root's gradients. benchmarks/step_memory.py compares the result with torch's tracker.

    A stage of a pipeline has fewer layers and as many more micro-batches under way.
    """
    memory = _memory(trained)
    shape = {**read_config(str(model.path)), **model.override_config}
    hidden = int(shape.get("hidden_size", 0))
    layers = int(shape.get("num_hidden_layers", 0))
    vocab = int(shape.get("vocab_size", 0))
    kept = 2 * (14 * hidden + 4 * _inner_size(shape))
    """of a token in a layer: norms (in float32), heads and rotary 14, SwiGLU 4"""
    in_backward = 4 * _inner_size(shape)
    recomputed = 0
    if model.recomputed_every:
        recomputed = -(-layers // model.recomputed_every)
        in_backward += kept
    inputs = recomputed * hidden * 2 + (layers - recomputed) * kept
    along, tensor = memory.activation_shares(trained, processes)
    matrix = vocab * hidden
    trains = not model.lora_rank
    head = min(slice_elements, tokens * vocab) * SLICE_BYTES // tensor
    head += 6 * hidden * tokens // along
    if trains and slice_elements < tokens * vocab:
        head += 4 * matrix // tensor  # the sum of the matrix's gradient
    layer = in_backward * tokens // along
    root = 0
    size = memory.gathered(trained)
    if size:
        tied = bool(shape.get("tie_word_embeddings", False))
        whole = matrix * (1 if tied else 2)
        unit = max(0, parameter_count(str(model.path)) - whole) // max(1, layers)
        head += (whole + unit) * size
        layer += (whole + 2 * unit) * size
        root = whole * size
        if trains:
            # gradients: those of the head and of a layer, and the layer's in float32
            layer += (matrix + unit) * size + unit * _FLOAT32
            root += whole * (size + _FLOAT32) + whole * _FLOAT32 // processes
    return inputs * tokens // along + max(head, layer, root)


def _inner_size(shape: Mapping[str, Any]) -> int:
    """Return the width of a layer's MLP, for a mixture of experts that of all a token's experts."""
    experts = int(shape.get("num_experts_per_tok") or 0)
    of_expert = int(shape.get("moe_intermediate_size") or shape.get("intermediate_size") or 0)
    if experts:
        return experts * of_expert
    return of_expert or 4 * int(shape.get("hidden_size", 0))


def gathered(trained: TrainedConfig) -> int:
    """Return the bytes with which each micro-batch gathers a parameter. 0: it gathers none."""
    return _memory(trained).gathered(trained)


def layout(trained: TrainedConfig, processes: int) -> str:
    """Return the strategy and the number of processes, as the plan prints them."""
    return _memory(trained).layout(trained, processes)

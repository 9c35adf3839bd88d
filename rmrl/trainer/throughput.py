"""Speed of a step's stages on their devices: tokens per second and device, and the share of the
devices' peak that updates reach (MFU).

    perf/generate/tokens_per_s_per_device   response tokens
    perf/update/tokens_per_s_per_device     tokens of prompts and responses, in each epoch
    perf/update/mfu                         0..1; only on devices of `CARDS`

A device is a GPU; on CPU a training process or a rollout engine.

MFU (model FLOPs utilization: Chowdhery et al. 2022, PaLM, appendix B, https://arxiv.org/abs/2204.02311)
= operations of the model / (seconds x devices x peak): 6 operations per parameter and token, 4 for
a frozen model with adapters, whose weights need no gradient. Attention and recomputed activations
are not counted, so it is a lower bound for long sequences. The peak is that of dense bfloat16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmrl.config.schema import Config
from rmrl.errors import ConfigError
from rmrl.models.checkpoint_inspect import parameter_count, read_config
from rmrl.telemetry.names import stage_time
from rmrl.types import Metrics


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU by its data sheet."""

    name: str
    """Beginning of the name that the driver gives it."""
    flops: float
    """Operations per second, dense bfloat16 with tensor cores (where a sheet gives the number with
    sparsity, half of it)."""
    bytes_per_s: float
    """Of its memory."""


CARDS = (
    Card("NVIDIA A100", 312e12, 2.0e12),
    Card("NVIDIA A800", 312e12, 2.0e12),
    Card("NVIDIA H100 PCIe", 756e12, 2.0e12),
    Card("NVIDIA H100 NVL", 835e12, 3.9e12),
    Card("NVIDIA H100 80GB HBM3", 989e12, 3.35e12),
    Card("NVIDIA H200 NVL", 835e12, 4.8e12),
    Card("NVIDIA H200", 989e12, 4.8e12),
    Card("NVIDIA L40S", 362e12, 0.864e12),
    Card("NVIDIA L4", 121e12, 0.3e12),
    Card("NVIDIA B200", 2250e12, 8.0e12),
)
"""NVIDIA's data sheets of these products (A100 and A800 with 80 GB)."""

_UPDATE = 6
_UPDATE_OF_ADAPTERS = 4
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Entries in config.json of a mixture of experts, whose tokens use a part of the parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Devices and operations from which the speed of a run is computed."""

    generate_devices: int
    update_devices: int
    update_operations: float | None
    """Per token, None where the number of parameters that a token uses is not known."""

    @classmethod
    def of(cls, config: Config, *, generate_devices: int) -> Throughput:
        """Read the policy's checkpoint headers."""
        return cls(
            generate_devices=generate_devices,
            update_devices=config.trainer.world_size,
            update_operations=_operations(config),
        )

    def metrics(
        self, times: Mapping[str, float], *, generated: int, trained: int, device: str
    ) -> Metrics:
        """Return the metrics above, those that are defined.

        `times`: `time/<stage>_s` of the step. `generated`: response tokens; `trained`: tokens of
        all rows in all epochs; `device`: name of the training devices, "" for CPUs.
        """
        out: Metrics = {}
        generate_s = times.get(stage_time("generate"), 0.0)
        if generate_s > 0 and generated:
            rate = generated / generate_s / self.generate_devices
            out["perf/generate/tokens_per_s_per_device"] = rate
        update_s = times.get(stage_time("update"), 0.0)
        if update_s > 0 and trained:
            rate = trained / update_s / self.update_devices
            out["perf/update/tokens_per_s_per_device"] = rate
            peak = peak_flops(device)
            if peak is not None and self.update_operations is not None:
                out["perf/update/mfu"] = rate * self.update_operations / peak
        return out


def card_of(device: str) -> Card | None:
    """Return the card with the longest name with which a device's name begins. None for a device
    that is not listed and for a part of a GPU (MIG)."""
    if " MIG " in device:
        return None
    found: list[Card] = [
        card
        for card in CARDS
        if device == card.name or device.startswith((f"{card.name} ", f"{card.name}-"))
    ]
    return max(found, key=lambda card: len(card.name), default=None)


def peak_flops(device: str) -> float | None:
    """Return the peak of a device by its name. None where it is not known."""
    card = card_of(device)
    return None if card is None else card.flops


def _operations(config: Config) -> float | None:
    model = config.actor_rollout_ref.model
    try:
        shape = read_config(str(model.path))
        parameters = parameter_count(str(model.path))
    except (ConfigError, OSError):
        return None
    if any(shape.get(entry) for entry in EXPERTS):
        return None
    per_parameter = _UPDATE_OF_ADAPTERS if model.lora_rank else _UPDATE
    return float(per_parameter * parameters)

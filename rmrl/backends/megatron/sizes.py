"""A model's parallel sizes, and a process's coordinates in them. Imports neither torch nor
megatron."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rmrl.backends.megatron.settings import parallel_problems
from rmrl.config.schema import MegatronConfig
from rmrl.errors import ConfigError

FAMILIES = ("llama", "qwen2", "qwen3", "qwen3_moe")
"""model_type of the Hugging Face configs that have a mapping to megatron-core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    """One process's place along each axis, from 0."""

    tensor: int
    context: int
    data: int
    pipeline: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Parallel sizes that fit the processes there are."""

    tensor: int
    pipeline: int
    virtual: int | None
    """Stages per process where there are several. None: one."""
    context: int
    expert: int
    sequence_parallel: bool
    """False where `tensor` is 1: nothing is split then."""
    data: int

    @classmethod
    def of(cls, megatron: MegatronConfig, world_size: int, *, section: str) -> Sizes:
        """Read the sizes from the settings. Raises ConfigError that names the numbers where they do
        not fit `world_size` processes."""
        problems = parallel_problems(megatron, world_size, section=section)
        if problems:
            raise ConfigError(problems)
        tensor = megatron.tensor_model_parallel_size
        pipeline = megatron.pipeline_model_parallel_size
        context = megatron.context_parallel_size
        virtual = megatron.virtual_pipeline_model_parallel_size
        return cls(
            tensor=tensor,
            pipeline=pipeline,
            virtual=None if virtual in (None, 1) else virtual,
            context=context,
            expert=megatron.expert_model_parallel_size,
            sequence_parallel=megatron.sequence_parallel and tensor > 1,
            data=world_size // (tensor * pipeline * context),
        )

    @property
    def model(self) -> int:
        """Processes that hold the model once together."""
        return self.tensor * self.pipeline * self.context

    @property
    def world(self) -> int:
        """All processes."""
        return self.model * self.data

    def coordinates(self, rank: int) -> Coordinates:
        """A rank's place in megatron-core's order, tp-cp-ep-dp-pp: neighbours share tensors,
        distant ranks are the pipeline's stages."""
        rest, tensor = divmod(rank, self.tensor)
        rest, context = divmod(rest, self.context)
        pipeline, data = divmod(rest, self.data)
        return Coordinates(tensor=tensor, context=context, data=data, pipeline=pipeline)

    def rank(self, place: Coordinates) -> int:
        """The process at a place; what undoes `coordinates`."""
        stage_rank = place.data + self.data * place.pipeline
        return place.tensor + self.tensor * (place.context + self.context * stage_rank)

    def problems(self, model_config: Mapping[str, Any], *, section: str) -> list[str]:
        """Reasons why a model, described by its config.json, cannot be cut into these sizes."""
        family = model_config.get("model_type")
        if family not in FAMILIES:
            return [
                f"{section}.strategy=megatron trains {', '.join(FAMILIES)}, and this model is"
                f" '{family}' (model_type in its config.json); use strategy=fsdp2"
            ]
        return [
            *self._uneven_widths(model_config, f"{section}.megatron"),
            *self._uneven_layers(model_config, f"{section}.megatron"),
            *self._uneven_experts(model_config, f"{section}.megatron"),
        ]

    def _uneven_widths(self, model: Mapping[str, Any], key: str) -> Iterator[str]:
        heads = model.get("num_attention_heads")
        ffn = "moe_intermediate_size" if _has_experts(model) else "intermediate_size"
        names = {
            "num_attention_heads": heads,
            "num_key_value_heads": model.get("num_key_value_heads") or heads,
            ffn: model.get(ffn),
        }
        widths = {name: int(width) for name, width in names.items() if width is not None}
        fitting = math.gcd(self.tensor, *widths.values())
        for name, width in widths.items():
            if width % self.tensor:
                yield (
                    f"{key}.tensor_model_parallel_size={self.tensor} does not divide the model's"
                    f" {name}={width}; use tensor_model_parallel_size={fitting}"
                )

    def _uneven_layers(self, model: Mapping[str, Any], key: str) -> Iterator[str]:
        layers = model.get("num_hidden_layers")
        stages = self.pipeline * (self.virtual or 1)
        if layers is None or layers % stages == 0:
            return
        setting = f"pipeline_model_parallel_size={self.pipeline}"
        if self.virtual:
            setting += f" x virtual_pipeline_model_parallel_size={self.virtual} = {stages} stages"
        yield (
            f"{key}: {setting} does not divide the model's num_hidden_layers={layers}; use sizes"
            f" whose product divides {layers}"
        )

    def _uneven_experts(self, model: Mapping[str, Any], key: str) -> Iterator[str]:
        experts = expert_count(model)
        setting = f"{key}.expert_model_parallel_size={self.expert}"
        if experts is None and self.expert > 1:
            yield f"{setting}: the model has no experts; use expert_model_parallel_size=1"
        elif experts is not None and experts % self.expert:
            yield (
                f"{setting} does not divide the model's num_experts={experts}; use a divisor of"
                f" {experts}"
            )
        if experts is not None and self.tensor > 1 and not self.sequence_parallel:
            yield (
                f"{key}.sequence_parallel=False with tensor_model_parallel_size={self.tensor}:"
                " megatron-core trains experts under tensor parallelism with sequence parallelism"
                " only; leave it out"
            )


def expert_count(model: Mapping[str, Any]) -> int | None:
    """How many experts each layer has, from config.json, which names it in one of two ways; None
    where layers have none."""
    if not _has_experts(model):
        return None
    return model.get("num_experts") or model.get("num_local_experts")


def _has_experts(model: Mapping[str, Any]) -> bool:
    return model.get("model_type") == "qwen3_moe"

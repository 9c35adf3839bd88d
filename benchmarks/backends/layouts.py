"""The layouts that are compared: how many processes, and what a command line says of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmrl.config.schema import ActorConfig, FSDPConfig, MegatronConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way to spread a model over processes."""

    name: str
    strategy: str
    processes: int
    sizes: dict[str, int] = field(default_factory=dict)
    """Entries of actor.megatron."""

    @property
    def holds(self) -> int:
        """Processes over which the weights are spread; the rest hold the same."""
        if self.strategy != "megatron":
            return self.processes
        return self.sizes.get("tensor_model_parallel_size", 1) * self.sizes.get(
            "pipeline_model_parallel_size", 1
        )

    def words(self) -> list[str]:
        """Of a command line; float32 everywhere."""
        part = "actor_rollout_ref.actor"
        dtype = [f"{part}.fsdp_config.param_dtype=null"]
        if self.strategy == "megatron":  # which refuses entries of the other section
            dtype = [f"{part}.megatron.dtype=float32", f"{part}.fsdp_config.param_dtype=bfloat16"]
        sizes = [f"{part}.megatron.{name}={size}" for name, size in self.sizes.items()]
        return [
            f"{part}.strategy={self.strategy}",
            f"trainer.n_gpus_per_node={self.processes}",
            *dtype,
            *sizes,
        ]

    def actor(self, **entries: Any) -> ActorConfig:
        """The same as settings."""
        megatron = MegatronConfig(dtype="float32", **self.sizes)
        return ActorConfig(
            strategy=self.strategy,
            fsdp_config=FSDPConfig(param_dtype=None),
            megatron=megatron,
            **entries,
        )


LAYOUTS = (
    Layout(name="fsdp2 x2", strategy="fsdp2", processes=2),
    Layout(
        name="megatron TP2",
        strategy="megatron",
        processes=2,
        sizes={"tensor_model_parallel_size": 2},
    ),
    Layout(
        name="megatron PP2",
        strategy="megatron",
        processes=2,
        sizes={"pipeline_model_parallel_size": 2},
    ),
    Layout(name="megatron DP2", strategy="megatron", processes=2),
)

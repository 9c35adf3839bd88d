"""Descriptors of sharded training, fsdp and fsdp2. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator

from rmrl.backends.descriptor import Backend, Offloads, Replicated, Sharding, State
from rmrl.config.schema import ModelConfig, TrainedConfig
from rmrl.models.checkpoint_inspect import parameter_count

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class ShardedMemory(Replicated):
    """All processes together hold one copy of everything."""

    def state(self, model: ModelConfig, trained: TrainedConfig, processes: int) -> State:
        size = parameter_count(str(model.path)) * _bytes(trained.fsdp_config.model_dtype)
        if model.lora_rank:  # the weights are alone, and what trains is small
            if trained.strategy != "fsdp":  # there all parameters have one dtype
                size = self.frozen_bytes(model, trained, processes)
            return State(weights=size, gradients=0, optimizer=0)
        return State(weights=size, gradients=size, optimizer=size * 2)

    def frozen_bytes(self, model: ModelConfig, trained: TrainedConfig, processes: int) -> int:  # noqa: ARG002
        fsdp = trained.fsdp_config
        return parameter_count(str(model.path)) * _bytes(fsdp.param_dtype or fsdp.model_dtype)

    def gathered(self, trained: TrainedConfig) -> int:
        return _bytes(trained.fsdp_config.param_dtype or trained.fsdp_config.model_dtype)

    def offloads(self, trained: TrainedConfig) -> Offloads:
        """No gradients exist between phases."""
        fsdp = trained.fsdp_config
        return Offloads(
            weights=fsdp.param_offload,
            optimizer=fsdp.optimizer_offload,
            keeps_gradients=False,
            always=fsdp.offload_policy,
        )


def _bytes(dtype: str) -> int:
    return _DTYPE_BYTES.get(dtype, 4)


def _model_dtype(trained: TrainedConfig) -> str:
    return trained.fsdp_config.model_dtype


def mesh_problem(section: str, fsdp_size: int, processes: int) -> str:
    """Return the sentence on shard groups that do not divide the processes; "" where they do."""
    if fsdp_size == -1 or (fsdp_size > 0 and processes % fsdp_size == 0):
        return ""
    number = "1 training process" if processes == 1 else f"{processes} training processes"
    return (
        f"{section}.fsdp_config.fsdp_size={fsdp_size} does not divide the {number}"
        f" (trainer.n_gpus_per_node x nnodes): leave it out (-1: all of them), or give a divisor of"
        f" {processes}"
    )


def _settings_problems(sharding: Sharding) -> Iterator[str]:
    """Shard groups that do not divide the processes, and compilation that cannot work here."""
    fsdp_size = sharding.trained.fsdp_config.fsdp_size
    problem = mesh_problem(sharding.section, fsdp_size, sharding.world_size)
    if problem:
        yield problem
    if not sharding.trained.fsdp_config.compile_layers:
        return
    from rmrl.models.compiled import compiler_problem  # imports torch

    problem = compiler_problem(sharding.device)
    if problem:
        yield f"{sharding.section}.fsdp_config.compile_layers=true {problem}; or leave it out"


def _model_problems(model: ModelConfig, section: str, key: str) -> Iterator[str]:  # noqa: ARG001
    """Offloading of activations that are not those of layers alone."""
    if model.enable_activation_offload and not model.enable_gradient_checkpointing:
        yield (
            f"{key}.enable_activation_offload=true moves what gradient checkpointing saves, and"
            " would move gathered weights without it: set"
            f" {key}.enable_gradient_checkpointing=true"
        )


FSDP = Backend(
    engine="rmrl.backends.fsdp.engine:FSDPEngine",
    energies=True,
    memory=ShardedMemory(),
    saved_dtype=_model_dtype,
    reads=("fsdp_config",),
    settings_problems=_settings_problems,
    model_problems=_model_problems,
)
FAKE = Backend(
    engine="rmrl.backends.fake:FakeTrainEngine",
    energies=True,
    memory=ShardedMemory(),
    saved_dtype=_model_dtype,
    reads=("fsdp_config",),
)

"""Descriptors for sharded training, fsdp and fsdp2. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator

from rmrl.backends.descriptor import (
    Backend,
    Offloads,
    Replicated,
    RowAssignment,
    Sharding,
    State,
)
from rmrl.config.schema import ModelConfig, TrainedConfig
from rmrl.errors import ConfigError
from rmrl.models.checkpoint_inspect import parameter_count

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class ShardedMemory(Replicated):
    """All processes together hold everything once."""

    def state(self, model: ModelConfig, trained: TrainedConfig, processes: int) -> State:
        size = parameter_count(str(model.path)) * _bytes(trained.fsdp_config.model_dtype)
        if model.lora_rank:  # the weights are alone, and what trains is small
            if trained.strategy != "fsdp":  # there all parameters have one dtype
                size = self.frozen_bytes(model, trained, processes)
            return State(weights=size, gradients=0, optimizer=0)
        return State(weights=size, gradients=size, optimizer=size * 2)

    def frozen_bytes(self, model: ModelConfig, trained: TrainedConfig, processes: int) -> int:  # noqa: ARG002
        return parameter_count(str(model.path)) * _bytes(_computed_in(trained))

    def gathered(self, trained: TrainedConfig) -> int:
        return _bytes(_computed_in(trained))

    def activation_shares(self, trained: TrainedConfig, processes: int) -> tuple[int, int]:  # noqa: ARG002
        return trained.fsdp_config.ulysses_sequence_parallel_size, 1

    def layout(self, trained: TrainedConfig, processes: int) -> str:
        size = trained.fsdp_config.ulysses_sequence_parallel_size
        rows = f", {size} share a row" if size > 1 else ""
        return super().layout(trained, processes) + rows

    def offloads(self, trained: TrainedConfig) -> Offloads:
        """No gradients exist between phases."""
        fsdp = trained.fsdp_config
        return Offloads(
            weights=fsdp.param_offload,
            optimizer=fsdp.optimizer_offload,
            keeps_gradients=False,
            always=fsdp.offload_policy,
        )


def _computed_in(trained: TrainedConfig) -> str:
    fsdp = trained.fsdp_config
    return fsdp.param_dtype or fsdp.model_dtype


def _bytes(dtype: str) -> int:
    return _DTYPE_BYTES.get(dtype, 4)


def mesh_problem(section: str, fsdp_size: int, processes: int) -> str:
    """Return the sentence on shard groups that do not divide the processes, "" where they do."""
    if fsdp_size == -1 or (fsdp_size > 0 and processes % fsdp_size == 0):
        return ""
    return _division_problem(
        f"{section}.fsdp_config.fsdp_size={fsdp_size}", processes, "-1: all of them"
    )


def _division_problem(setting: str, processes: int, default: str) -> str:
    number = "1 training process" if processes == 1 else f"{processes} training processes"
    return (
        f"{setting} does not divide the {number} (trainer.n_gpus_per_node x nnodes): leave it out"
        f" ({default}), or give a divisor of {processes}"
    )


def sharing_of(trained: TrainedConfig, section: str) -> tuple[int, str]:
    """Return how many processes share every row, and the setting as text."""
    size = trained.fsdp_config.ulysses_sequence_parallel_size
    return size, f"{section}.fsdp_config.ulysses_sequence_parallel_size={size}"


def _row_assignment(trained: TrainedConfig, world_size: int, section: str) -> RowAssignment:
    """Give neighbouring processes the same rows, for which the first answers."""
    size, setting = sharing_of(trained, section)
    if world_size % size:
        raise ConfigError(_division_problem(setting, world_size, "1: each has rows of its own"))
    share_of = tuple(rank // size for rank in range(world_size))
    return RowAssignment(share_of, tuple(range(0, world_size, size)))


def _settings_problems(sharding: Sharding) -> Iterator[str]:
    """Shard groups that do not divide the processes, and compilation that cannot work here."""
    fsdp_size = sharding.trained.fsdp_config.fsdp_size
    problem = mesh_problem(sharding.section, fsdp_size, sharding.world_size)
    if problem:
        yield problem
    yield from _sharing_problems(sharding)
    if not sharding.trained.fsdp_config.compile_layers:
        return
    from rmrl.models.compiled import compiler_problem  # imports torch

    problem = compiler_problem(sharding.device)
    if problem:
        yield f"{sharding.section}.fsdp_config.compile_layers=true {problem}; or leave it out"


def _sharing_problems(sharding: Sharding) -> Iterator[str]:
    """Yield reasons why processes cannot share rows, whatever the model."""
    size, setting = sharing_of(sharding.trained, sharding.section)
    if size <= 1:
        return
    try:
        _row_assignment(sharding.trained, sharding.world_size, sharding.section)
    except ConfigError as error:
        yield from error.problems
    if sharding.trained.fsdp_config.compile_layers:
        yield (
            f"{setting} with {sharding.section}.fsdp_config.compile_layers=true: exchanges between"
            " processes are not compiled; leave out one of them"
        )
    from rmrl.models.loading import torch_dtype
    from rmrl.models.packing import sharing_problem  # imports torch

    dtype = torch_dtype(_computed_in(sharding.trained), key=f"{sharding.section}.fsdp_config")
    problem = sharing_problem(sharding.model, device=sharding.device, dtype=dtype)
    if problem:
        yield f"{setting} {problem}"


def _shape_problems(sharding: Sharding) -> Iterator[str]:
    """Yield reasons why processes cannot share rows that this model computes."""
    size, setting = sharing_of(sharding.trained, sharding.section)
    if size <= 1:
        return
    from rmrl.models.loading import load_config
    from rmrl.models.sequence_parallel import config_problem  # imports torch

    problem = config_problem(load_config(sharding.model), size)
    if problem:
        yield f"{setting} {problem}"


def _model_problems(model: ModelConfig, section: str, key: str) -> Iterator[str]:  # noqa: ARG001
    """Yield where activations would be offloaded without gradient checkpointing."""
    if model.enable_activation_offload and not model.recomputed_every:
        yield (
            f"{key}.enable_activation_offload=true moves what gradient checkpointing saves, and"
            " would move gathered weights without it: set"
            f" {key}.enable_gradient_checkpointing=true"
        )


FSDP = Backend(
    engine="rmrl.backends.fsdp.engine:FSDPEngine",
    energies=True,
    memory=ShardedMemory(),
    saved_dtype=lambda trained: trained.fsdp_config.model_dtype,
    reads=("fsdp_config",),
    row_assignment=_row_assignment,
    problems=_shape_problems,
    settings_problems=_settings_problems,
    model_problems=_model_problems,
)

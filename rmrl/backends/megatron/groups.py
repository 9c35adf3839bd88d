"""A Megatron run's process groups: joined once per process, shared by its engines."""

from __future__ import annotations

from dataclasses import replace

import torch

from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.megatron.core import parallel_state, tensor_parallel
from rmrl.backends.megatron.cpu import adapted
from rmrl.backends.megatron.sizes import Sizes
from rmrl.backends.process_group import join_group
from rmrl.errors import ConfigError

_joined: list[Sizes] = []  # of this process; empty outside


def join(settings: TrainSettings, process: ProcessSettings) -> tuple[Sizes, torch.device]:
    """Join the process group and megatron-core's groups in it. Returns the parallel sizes and this
    process's device.

    A second engine in the process shares them. Raises ConfigError where its sizes are others (but
    for sequence parallelism, which is an engine's own), where the sizes do not fit the processes,
    and for CPU processes that can see a CUDA device.
    """
    if settings.device == "cpu" and torch.cuda.is_available():
        raise ConfigError(
            f"{settings.section}.strategy=megatron with trainer.device=cpu, but torch sees a CUDA"
            " device, which megatron-core would use: set trainer.device=cuda, or hide the device"
            " (CUDA_VISIBLE_DEVICES='')"
        )
    sizes = Sizes.of(settings.trained.megatron, process.world_size, section=settings.section)
    device = join_group(process, settings.device)
    if not _joined:
        with adapted(), torch.random.fork_rng(devices=[]):
            parallel_state.initialize_model_parallel(
                tensor_model_parallel_size=sizes.tensor,
                pipeline_model_parallel_size=sizes.pipeline,
                virtual_pipeline_model_parallel_size=sizes.virtual,
                context_parallel_size=sizes.context,
                expert_model_parallel_size=sizes.expert,
                # An expert's matrices are cut as those of a dense layer.
                expert_tensor_parallel_size=sizes.tensor,
                distributed_timeout_minutes=process.timeout_s / 60,  # pyright: ignore[reportArgumentType]
            )
            # Nothing is drawn, but megatron-core saves and restores these generators around layers.
            tensor_parallel.model_parallel_cuda_manual_seed(settings.seed)
        _joined.append(sizes)
    elif _shared(sizes) != _shared(_joined[0]):
        raise ConfigError(
            f"{settings.section}.megatron: {_shown(sizes)}, but the engine beside it in the same"
            f" processes has {_shown(_joined[0])}; use the same sizes for both, or another pool"
            " (critic.pool)"
        )
    return sizes, device


def leave() -> None:
    """Leave megatron-core's groups, so that others can be joined. The process group itself stays;
    does nothing outside."""
    if _joined:
        parallel_state.destroy_model_parallel()
        _joined.clear()


def _shared(sizes: Sizes) -> Sizes:
    return replace(sizes, sequence_parallel=False)


def _shown(sizes: Sizes) -> str:
    return (
        f"tensor_model_parallel_size={sizes.tensor}, pipeline_model_parallel_size={sizes.pipeline},"
        f" virtual_pipeline_model_parallel_size={sizes.virtual or 1},"
        f" context_parallel_size={sizes.context}, expert_model_parallel_size={sizes.expert}"
    )

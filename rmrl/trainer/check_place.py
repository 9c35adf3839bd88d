"""Place of a run: the number of processes, the folder, and whether any step is left to do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from rmrl.assemble.memory import wide_on_cpu
from rmrl.cluster.devices import Devices, cores, joined_address
from rmrl.cluster.memory_plan import gib
from rmrl.cluster.pools import device_count
from rmrl.config.schema import Config
from rmrl.errors import CheckpointError, ConfigError
from rmrl.inference.weights.shared_memory import needed_bytes
from rmrl.models.checkpoint_inspect import weight_bytes
from rmrl.trainer import checkpoint
from rmrl.trainer.best import stopped_early
from rmrl.trainer.plan import publishes_by_file


def fill_processes(config: Config, devices: Devices) -> None:
    """Replace trainer.n_gpus_per_node=-1, in place, by the GPUs that each of trainer.nnodes
    machines has; on CPU by one process that uses all cores."""
    trainer = config.trainer
    if trainer.n_gpus_per_node == -1:
        # Machines that are still to join are taken to be like those that are there.
        present = min(trainer.nnodes, len(devices.machines))
        trainer.n_gpus_per_node = max(devices.gpus_per_node(present), 1)


def process_problems(config: Config, devices: Devices) -> Iterator[str]:
    """Report more training processes than this machine has GPUs or, on CPU, cores, and rollout
    engines that are wider than their place. Larger machines may still join a cluster; Ray waits for
    them and names what is missing. Nothing is reported where no device was found."""
    if not devices.machines:
        return
    count = config.trainer.n_gpus_per_node
    if not _joins_a_cluster(config):
        if devices.kind == "cpu":
            available = cores()
            what = f"CPU cores: {count} training processes would take turns on them"
        else:
            available = devices.gpus_per_node(1)
            what = "GPUs"
        if count > available:
            yield (
                f"trainer.n_gpus_per_node={count}, and this machine has {available} {what}; give at"
                f" most {available}, or leave it out"
            )
    yield from _width_problems(config, devices)


def _width_problems(config: Config, devices: Devices) -> Iterator[str]:
    """Report rollout engines that cannot be cut as wide on their place's devices."""
    rollout = config.actor_rollout_ref.rollout
    width = rollout.tensor_parallel_size
    key = f"actor_rollout_ref.rollout.tensor_parallel_size={width}"
    if devices.kind == "cpu":
        if width > cores() and not _joins_a_cluster(config):
            yield wide_on_cpu(key)
        return
    try:
        count = device_count(config.trainer, rollout.pool)
    except (ConfigError, KeyError):
        return  # a pool that another check reports
    if count > 0 and count % width:
        place = "trainer" if rollout.pool is None else f"pool '{rollout.pool}'"
        yield f"{key} does not divide the {count} devices of {place}: give a divisor of {count}"


def finished_step(config: Config, folder: Path, *, total_steps: int) -> int | None:
    """Return the step of the newest checkpoint in the output folder where no step is left to train,
    None where there is one."""
    if config.trainer.val_only or config.trainer.resume_mode != "auto" or not total_steps:
        return None
    root = folder / "checkpoints"
    last = checkpoint.last_step(root)
    if last < total_steps and not stopped_early(config, checkpoint.folder_of(root, last)):
        return None
    try:
        newest = checkpoint.newest_complete(root, level=logging.DEBUG)
    except CheckpointError:  # reported when the run resumes
        return None
    if newest is not None and newest.step >= min(last, total_steps):
        return newest.step
    return None


def published_weights_advice(config: Config, devices: Devices) -> Iterator[str]:
    """Advise where new weights do not fit into shared memory, on the machine with the least of it.

    Raises ConfigError where the temporary folder has no room for them either.
    """
    machines = [one for one in devices.machines if one.shared_memory_bytes is not None]
    if not machines or not publishes_by_file(config) or config.trainer.val_only:
        return
    machine = min(machines, key=lambda one: one.shared_memory_bytes or 0)
    shared = machine.shared_memory_bytes or 0
    path = str(config.actor_rollout_ref.model.path)
    needed = needed_bytes(weight_bytes(path, config.actor_rollout_ref.rollout.dtype))
    if shared >= needed:
        return
    size = needed // 2**30 + 1
    problem = (
        f"every step publishes the policy's weights in a file of {gib(needed)}, and /dev/shm has"
        f" {gib(shared)} free"
    )
    remedy = (
        f"start the container with --shm-size={size}g (Docker gives 64 MB), or type mount -o"
        f" remount,size={size}g /dev/shm"
    )
    temporary = machine.temporary_bytes
    if temporary is not None and temporary < needed:
        raise ConfigError(
            f"{problem}, the temporary folder {gib(temporary)}: {remedy}, or point TMPDIR at a"
            " larger disk"
        )
    yield f"{problem}: it goes to the temporary folder instead, on a disk; {remedy}"


def _joins_a_cluster(config: Config) -> bool:
    joins = joined_address(config.ray_kwargs.ray_init) is not None
    return config.trainer.nnodes > 1 or joins

"""Devices on a job's machines: in the Ray cluster that it joins, else on this machine.

The driver itself may run on a machine without GPUs, such as the cluster's head: its own torch
says nothing about the machines that train.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rmrl.cluster.devices import (
    Devices,
    Machine,
    choose_devices,
    cpu_devices,
    joined_address,
    local_devices,
)
from rmrl.cluster.devices import this_machine as _this_machine
from rmrl.errors import InfrastructureError

_TIMEOUT_S = 120.0


def find_devices(device: str, ray_init: Mapping[str, Any]) -> Devices:
    """Return the devices for `trainer.device` (auto, cuda or cpu).

    A cluster is joined for the call's time: Ray's resources have its machines' GPUs, a task on each
    of them reads their memory. Raises ConfigError for cuda where there is no GPU,
    InfrastructureError for a cluster that cannot be joined or gives no answer.
    """
    if device == "cpu":
        return cpu_devices()
    address = joined_address(ray_init)
    if address is None:
        return local_devices(device)
    from rmrl.cluster.session import ray_session  # here: it imports Ray

    with ray_session(ray_init, processes=0):
        machines = _machines()
    return choose_devices(device, machines, where=f"the Ray cluster at {address}")


def _machines() -> list[Machine]:
    """Return the joined cluster's machines."""
    import ray
    from ray.exceptions import GetTimeoutError, RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    machines: list[Machine] = []
    tasks: list[Any] = []
    # Without the variable Ray hides the GPUs from a task that reserves none.
    environment = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        count = int(node["Resources"].get("GPU", 0))
        if not count:
            place = node["NodeManagerAddress"]
            machines.append(Machine(without=f"Ray counts no GPU on {place}"))
            continue
        task = ray.remote(machine_of_node).options(
            num_cpus=0,
            max_retries=0,
            runtime_env={"env_vars": environment},
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        tasks.append(task.remote(count))
    try:
        machines += ray.get(tasks, timeout=_TIMEOUT_S)
    except (GetTimeoutError, RayError) as error:
        raise InfrastructureError(
            "the machines of the Ray cluster did not report the memory of their GPUs"
            f" ({type(error).__name__}: {error}); each needs rmrl installed and a driver that"
            " answers (nvidia-smi)"
        ) from error
    return machines


def machine_of_node(count: int) -> Machine:
    """Return the machine on which this runs with the `count` GPUs that Ray has there. Which ones a
    job will get is not known, so those with most free memory are taken."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        del os.environ["CUDA_VISIBLE_DEVICES"]
    machine = _this_machine()
    gpus = sorted(machine.gpus, key=lambda gpu: -gpu.free_bytes)
    return replace(machine, gpus=tuple(gpus[:count]), unusable_gpus=False)

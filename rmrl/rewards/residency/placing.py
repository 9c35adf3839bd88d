"""Devices of each engine, and turns of the engines that share one."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence

from rmrl.errors import ConfigError
from rmrl.rewards.residency.plan import EnginePlan

Turn = tuple[str, int]
"""(place, smallest device of those that are linked by shared engines)."""


def placed(
    plans: Sequence[EnginePlan],
    devices: Mapping[str, int],
    *,
    per_node: Mapping[str, int] | None = None,
) -> list[EnginePlan]:
    """Return the plans with `devices`.

    `devices`: number of devices of each place ("" = the policy's); `per_node`: number of them on
    one machine.

    Raises one ConfigError with all engines that name an unknown pool or need more devices than
    their place has.
    """
    pools = ", ".join(sorted(filter(None, devices))) or "none"
    problems: list[str] = []
    for plan in plans:
        if plan.place not in devices:
            problems.append(
                f"the engine of {plan.label} names pool '{plan.place}', which"
                f" trainer.resource_pools does not have (known: {pools}); add"
                f" trainer.resource_pools.{plan.place}.n_gpus_per_node=1"
            )
    first: dict[Hashable, int] = {}
    for place, count in devices.items():
        plans_of_place = [plan for plan in plans if plan.place == place]
        try:
            first |= assign_devices(plans_of_place, count, per_node=(per_node or {}).get(place))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    with_devices: list[EnginePlan] = []
    for plan in plans:
        numbers = range(first[plan.key], first[plan.key] + _width(plan))
        with_devices.append(dataclasses.replace(plan, devices=tuple(numbers)))
    return with_devices


def assign_devices(
    plans: Sequence[EnginePlan], devices: int, *, per_node: int | None = None
) -> dict[Hashable, int]:
    """Return key -> first device, for engines of one place with `devices` devices in a row,
    `per_node` on each machine (None: all on one).

    Largest first, each onto the least loaded block of devices, so that engines that can live side
    by side do. Replicas lie one after the other; none of them spans two machines. On CPU every
    engine gets device 0, the machine. Raises ConfigError.
    """
    load = [0] * devices
    first: dict[Hashable, int] = {}
    problems: list[str] = []
    for plan in sorted(plans, key=lambda plan: (-_width(plan) * plan.awake_bytes, -_width(plan))):
        starts = _starts(plan, devices, per_node or devices)
        if not starts:
            owner = "the policy has"
            key = "trainer.n_gpus_per_node"
            if plan.place:
                owner = f"pool '{plan.place}' has"
                key = f"trainer.resource_pools.{plan.place}.n_gpus_per_node"
            machines = ""
            if per_node and per_node < devices:
                machines = f" ({per_node} on a machine)"
            spec = plan.spec
            problems.append(
                f"the engine of {plan.label} needs tensor_parallel_size"
                f" {spec.tensor_parallel_size} x replicas {spec.replicas} = {_width(plan)} devices"
                f" and {owner} {devices}{machines}: lower engine.tensor_parallel_size or"
                f" engine.replicas, or raise {key}"
            )
            continue
        width = _width(plan)
        start = min(starts, key=lambda s: (max(load[s : s + width]), sum(load[s : s + width]), s))
        first[plan.key] = start
        for device in range(start, start + width):
            # Engines of unknown size are spread as well.
            load[device] += max(plan.awake_bytes, 1)
    if problems:
        raise ConfigError(problems)
    return first


def turns(plans: Sequence[EnginePlan]) -> dict[Hashable, Turn]:
    """Return key -> turn: engines that share a device, directly or through others, have the same
    turn and score one after another."""
    groups: list[tuple[set[tuple[str, int]], list[Hashable]]] = []
    for plan in plans:
        devices = {(plan.place, device) for device in plan.devices}
        keys = [plan.key]
        for group in list(groups):
            if group[0] & devices:
                groups.remove(group)
                devices |= group[0]
                keys = [*group[1], *keys]
        groups.append((devices, keys))
    turn_of: dict[Hashable, Turn] = {}
    for devices, keys in groups:
        turn_of.update(dict.fromkeys(keys, min(devices)))
    return turn_of


def _width(plan: EnginePlan) -> int:
    """Return the number of devices of the engine."""
    if plan.spec.device == "cpu":
        return 1
    return plan.spec.tensor_parallel_size * plan.spec.replicas


def _starts(plan: EnginePlan, devices: int, per_node: int) -> list[int]:
    """Possible first devices: no replica spans two machines."""
    if plan.spec.device == "cpu":
        return [0]
    width = _width(plan)
    size = plan.spec.tensor_parallel_size
    starts: list[int] = []
    for start in range(0, devices - width + 1, size):
        replicas = range(start, start + width, size)
        if all(first // per_node == (first + size - 1) // per_node for first in replicas):
            starts.append(start)
    return starts

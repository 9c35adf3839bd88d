"""Assign devices to engines, and turns to the engines that share a device."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from rmrl.errors import ConfigError
from rmrl.rewards.residency.plan import EnginePlan

_log = logging.getLogger(__name__)

Turn = tuple[str, int]
"""(place, smallest device among the devices that shared engines link)."""


def with_replicas(
    plans: Sequence[EnginePlan],
    devices: Mapping[str, int],
    *,
    per_node: Mapping[str, int] | None = None,
) -> list[EnginePlan]:
    """Return the plans with a number of replicas each. A plan without a number on CUDA gets as many
    as its place has devices for. Arguments as in `placed`.

    A running server, an engine on CPU and an engine whose place does not exist keep one replica. A
    resident engine beside others also keeps one, because more would find no room on any device.
    """
    engines = Counter(plan.place for plan in plans)
    filled: list[EnginePlan] = []
    for plan in plans:
        stays = plan.residency == "resident" and engines[plan.place] > 1
        if _is_open(plan) and plan.place in devices and not stays:
            count = devices[plan.place]
            on_machine = (per_node or {}).get(plan.place, count)
            replicas = _most_replicas(plan.spec.tensor_parallel_size, count, on_machine)
            plan = dataclasses.replace(plan, replicas=replicas)
        filled.append(plan)
    return filled


def within_host_memory(plans: Sequence[EnginePlan], free_bytes: int) -> list[EnginePlan]:
    """Return the sized plans. Fewer of the replicas that `with_replicas` chose are left where all
    sleeping engines' weights need more than `free_bytes` of host memory.

    The engine with most bytes gives up a replica first. Each engine keeps one, with which the plan
    may still not fit. The log has the numbers.
    """
    fitting = list(plans)
    while sum(plan.host_bytes for plan in fitting) > free_bytes:
        sizes = {
            number: plan.host_bytes
            for number, plan in enumerate(fitting)
            if _is_open(plan) and plan.replicas > 1
        }
        if not any(sizes.values()):
            break
        index = max(sizes, key=lambda number: sizes[number])
        plan = fitting[index]
        fewer = plan.replicas - 1
        host_bytes = plan.host_bytes // plan.replicas * fewer
        fitting[index] = dataclasses.replace(plan, replicas=fewer, host_bytes=host_bytes)
    for plan, lowered in zip(plans, fitting, strict=True):
        if lowered.replicas < plan.replicas:
            _log.warning(
                f"the engine of {plan.label} has {lowered.replicas} of the {plan.replicas} replicas"
                " that its devices have room for (engine.replicas=null): the weights of sleeping"
                f" engines need {plan.host_bytes // plan.replicas / 2**30:.2f} GiB of host memory"
                f" for each, and {max(0, free_bytes) / 2**30:.2f} GiB are free for all;"
                " engine.put_away=sleep2 or unload needs none, engine.replicas=1 keeps one"
            )
    return fitting


def _is_open(plan: EnginePlan) -> bool:
    """Return whether the number of replicas follows from the devices."""
    spec = plan.spec
    return spec.replicas is None and spec.device == "cuda" and "base_url" not in spec.kwargs


def _most_replicas(size: int, devices: int, per_node: int) -> int:
    """Return how many replicas with `size` devices fit in a row, none across two machines. At least
    1."""
    if per_node % size:
        # The devices left over on a machine interrupt the row.
        return max(1, min(per_node, devices) // size)
    return max(1, devices // size)


def placed(
    plans: Sequence[EnginePlan],
    devices: Mapping[str, int],
    *,
    per_node: Mapping[str, int] | None = None,
) -> list[EnginePlan]:
    """Return the plans with `devices`.

    `devices`: number of devices at each place ("" = the policy's). `per_node`: number of a place's
    devices on one machine.

    Raises one ConfigError with all engines that name an unknown pool or need more devices than
    their place has.
    """
    pools = ", ".join(sorted(filter(None, devices))) or "none"
    problems = [
        f"the engine of {plan.label} names pool '{plan.place}', which"
        f" trainer.resource_pools does not have (known: {pools}); add"
        f" trainer.resource_pools.{plan.place}.n_gpus_per_node=1"
        for plan in plans
        if plan.place not in devices
    ]
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
    """Return key -> first device, for the engines at one place with `devices` devices in a row,
    `per_node` on each machine (None: all on one).

    The largest engine comes first, and each goes onto the least loaded block of devices, so that
    engines that can live side by side do. An engine's replicas lie one after the other, none across
    two machines. On CPU every engine gets device 0, the machine. Raises ConfigError.
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
                f" {spec.tensor_parallel_size} x replicas {plan.replicas} = {_width(plan)} devices"
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
    """Return key -> turn. Engines that share a device, directly or through others, have the same
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
    """Return the engine's number of devices."""
    if plan.spec.device == "cpu":
        return 1
    return plan.spec.tensor_parallel_size * plan.replicas


def _starts(plan: EnginePlan, devices: int, per_node: int) -> list[int]:
    """Return the possible first devices, so that no replica spans two machines."""
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

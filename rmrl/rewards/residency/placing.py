"""Which devices of its place an engine gets, and which engines therefore have to take turns."""

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
    """The plans with `devices`. `devices`: how many each place has ("" = the policy's); `per_node`:
    how many of them on one machine.

    Raises one ConfigError with all engines that name an unknown pool or need more devices than
    their place has.
    """
    problems = [
        f"the engine of {plan.label} wants pool '{plan.place}', which trainer.resource_pools does"
        f" not have (known: {', '.join(sorted(filter(None, devices))) or 'none'}); add"
        f" trainer.resource_pools.{plan.place}.n_gpus_per_node=1"
        for plan in plans
        if plan.place not in devices
    ]
    first: dict[Hashable, int] = {}
    for place, count in devices.items():
        here = [plan for plan in plans if plan.place == place]
        try:
            first |= assign_devices(here, count, per_node=(per_node or {}).get(place))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return [
        dataclasses.replace(
            plan, devices=tuple(range(first[plan.key], first[plan.key] + _width(plan)))
        )
        for plan in plans
    ]


def assign_devices(
    plans: Sequence[EnginePlan], devices: int, *, per_node: int | None = None
) -> dict[Hashable, int]:
    """Key -> first device, for engines of one place with `devices` devices in a row, `per_node` on
    each machine (None: all on one).

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
            problems.append(_too_wide(plan, devices, per_node))
            continue
        width = _width(plan)
        start = min(starts, key=lambda s: (max(load[s : s + width]), sum(load[s : s + width]), s))
        first[plan.key] = start
        for device in range(start, start + width):
            load[device] += max(plan.awake_bytes, 1)  # engines of unknown size are spread as well
    if problems:
        raise ConfigError(problems)
    return first


def turns(plans: Sequence[EnginePlan]) -> dict[Hashable, Turn]:
    """Key -> turn: engines that share a device, directly or through others, have the same and score
    one after another."""
    groups: list[tuple[set[tuple[str, int]], list[Hashable]]] = []
    for plan in plans:
        devices, keys = {(plan.place, device) for device in plan.devices}, [plan.key]
        for touching in [group for group in groups if group[0] & devices]:
            groups.remove(touching)
            devices, keys = devices | touching[0], [*touching[1], *keys]
        groups.append((devices, keys))
    return {key: min(devices) for devices, keys in groups for key in keys}


def _width(plan: EnginePlan) -> int:
    """Devices the engine takes."""
    return 1 if plan.spec.device == "cpu" else plan.spec.tensor_parallel_size * plan.spec.replicas


def _starts(plan: EnginePlan, devices: int, per_node: int) -> list[int]:
    if plan.spec.device == "cpu":
        return [0]
    width, each = _width(plan), plan.spec.tensor_parallel_size
    replicas = range(0, width, each)
    aligned = range(0, devices - width + 1, each)
    return [
        s
        for s in aligned
        if all((s + r) // per_node == (s + r + each - 1) // per_node for r in replicas)
    ]


def _too_wide(plan: EnginePlan, devices: int, per_node: int | None) -> str:
    where = f"pool '{plan.place}' has" if plan.place else "the policy has"
    more = (
        f"trainer.resource_pools.{plan.place}.n_gpus_per_node"
        if plan.place
        else "trainer.n_gpus_per_node"
    )
    spec = plan.spec
    machines = f" ({per_node} on a machine)" if per_node and per_node < devices else ""
    return (
        f"the engine of {plan.label} needs tensor_parallel_size {spec.tensor_parallel_size} x"
        f" replicas {spec.replicas} = {_width(plan)} devices and {where} {devices}{machines}: lower"
        f" engine.tensor_parallel_size or engine.replicas, or raise {more}"
    )

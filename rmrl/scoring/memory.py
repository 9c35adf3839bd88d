"""Memory plan of the engines of rewards, estimated from checkpoint headers before anything is
loaded.

engines = prepare_engines(specs, ...)     which engines, how large, on which devices
plan    = scoring_plan(engines, ...)      or, beside a policy, rmrl.trainer.plan.memory_plan
plan.check(); budget_of(plan)             what the residency keeps to
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from rmrl.cluster.devices import free_bytes, total_bytes
from rmrl.cluster.ledger import MEMORY, PHASES, Claim, MemoryPlan
from rmrl.cluster.pools import pool_sizes
from rmrl.config.schema import ScoreTrainerConfig, TrainerConfig
from rmrl.rewards.residency import Budget, EnginePlan, Room, placed, plan_engines, sized
from rmrl.rewards.specs.spec import RewardSpec

HOST_MEMORY = "host memory"
"""Memory of a machine with GPUs for engines that sleep at level 1 and offloaded tensors."""


class Budgets(TypedDict):
    """Bytes a plan may use."""

    budget_bytes: int
    host_bytes: int | None


def budgets(trainer: TrainerConfig | ScoreTrainerConfig, *, device: str) -> Budgets:
    """Return the budget of each GPU, or of the machine: trainer.memory_budget_gb, else the memory
    that is free now; and that of the host memory beside GPUs."""
    limit_gb = trainer.memory_budget_gb
    return {
        "budget_bytes": free_bytes(device) if limit_gb is None else int(limit_gb * 2**30),
        "host_bytes": free_bytes("cpu") if device == "cuda" else None,
    }


def prepare_engines(
    specs: Sequence[RewardSpec], trainer: TrainerConfig | ScoreTrainerConfig, *, device: str
) -> list[EnginePlan]:
    """Return the engines of the rewards with their sizes and devices; place "" has trainer.nnodes x
    n_gpus_per_node devices.

    Raises ConfigError for an unknown pool, for more devices than a place has, and for a checkpoint
    without weights.
    """
    plans = sized(plan_engines(specs), device_bytes=total_bytes("cuda") if device == "cuda" else 0)
    per_node = {"": trainer.n_gpus_per_node}
    counts = {"": trainer.nnodes * trainer.n_gpus_per_node}
    for name, size in pool_sizes(trainer.resource_pools).items():
        per_node[name] = size.n_gpus_per_node
        counts[name] = size.devices
    return placed(plans, counts, per_node=per_node)


def scoring_plan(
    engines: Sequence[EnginePlan], *, budget_bytes: int, host_bytes: int | None = None
) -> MemoryPlan:
    """Return the plan without a policy: offline scoring, evaluation, the HTTP service."""
    return plan_of(engine_claims(engines), budget_bytes, host_bytes)


def budget_of(plan: MemoryPlan) -> Budget:
    """Return the memory that the engines of each place may hold by this plan."""
    rooms: dict[str, Room] = {}
    for place in plan.places():
        rooms[place] = Room(plan.scoring_bytes(place), plan.idle_bytes(place))
    return Budget(rooms)


def plan_of(claims: Sequence[Claim], budget_bytes: int, host_bytes: int | None) -> MemoryPlan:
    """Return a plan with one budget for every GPU (CPU: the machine) and one for host memory."""
    devices = itertools.chain.from_iterable(claim.devices for claim in claims)
    budgets = dict.fromkeys(devices, budget_bytes)
    if HOST_MEMORY in budgets:
        del budgets[HOST_MEMORY]
        if host_bytes is not None:
            budgets[HOST_MEMORY] = host_bytes
    return MemoryPlan(claims, budgets)


def engine_claims(engines: Sequence[EnginePlan]) -> list[Claim]:
    """Return one claim per engine on its devices, and one on host memory if it keeps its weights
    there."""
    claims: list[Claim] = []
    for plan in engines:
        spec = plan.spec
        how = f"{plan.residency}, {plan.put_away}"
        away_bytes = plan.away_bytes
        resident = plan.residency == "resident"
        if resident:
            how = "resident"
            away_bytes = plan.awake_bytes
        width = ""
        for word, count in (("tp", spec.tensor_parallel_size), ("x", spec.replicas)):
            if count > 1:
                width += f" {word}{count}"
        devices = (MEMORY,)
        if spec.device != "cpu":
            devices = tuple(gpu(plan.place, number) for number in plan.devices)
        claim = Claim(
            who=plan.label,
            what=f"{Path(spec.path).name} {spec.name}/{spec.runner} {spec.dtype}{width}, {how}",
            awake_bytes=plan.awake_bytes,
            away_bytes=away_bytes,
            # A pool scores while others sample and train; on the policy's devices a resident engine
            # stays through all phases.
            when=PHASES if resident or plan.place else ("score",),
            devices=devices,
            place=plan.place,
            alternates=not resident,
        )
        claims.append(claim)
    for plan in engines:
        if plan.host_bytes:
            weights = f"weights of {Path(plan.spec.path).name}, asleep"
            claims.append(host(plan.label, weights, plan.host_bytes))
    return claims


def gpu(place: str, number: int) -> str:
    """Return the name of a device in the plan."""
    return f"{place} gpu {number}" if place else f"gpu {number}"


def host(who: str, what: str, count: int) -> Claim:
    """Return a claim on host memory through all phases."""
    return Claim(
        who=who, what=what, awake_bytes=count, away_bytes=count, when=PHASES, devices=(HOST_MEMORY,)
    )

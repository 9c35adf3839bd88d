"""How much memory the engines of rewards will hold where, estimated from checkpoint headers before
anything is loaded.

engines = prepare_engines(specs, ...)     which engines, how large, on which devices
plan    = scoring_plan(engines, ...)      or, beside a policy, rmrl.trainer.plan.memory_plan
plan.check(); budget_of(plan)             what the residency keeps to
"""

from __future__ import annotations

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
"""Of a machine with GPUs: what sleeps at level 1 or is offloaded stays there."""


class Budgets(TypedDict):
    """Bytes a plan may use."""

    budget_bytes: int
    host_bytes: int | None


def budgets(trainer: TrainerConfig | ScoreTrainerConfig, *, device: str) -> Budgets:
    """Of each GPU, or of the machine: trainer.memory_budget_gb, else what is free now; host memory
    of a machine with GPUs."""
    asked = trainer.memory_budget_gb
    return {
        "budget_bytes": free_bytes(device) if asked is None else int(asked * 2**30),
        "host_bytes": free_bytes("cpu") if device == "cuda" else None,
    }


def prepare_engines(
    specs: Sequence[RewardSpec], trainer: TrainerConfig | ScoreTrainerConfig, *, device: str
) -> list[EnginePlan]:
    """The engines of the rewards with their sizes and devices; trainer.nnodes x n_gpus_per_node
    devices are place "".

    Raises ConfigError for an unknown pool, for more devices than a place has, and for a checkpoint
    without weights.
    """
    plans = sized(plan_engines(specs), device_bytes=total_bytes("cuda") if device == "cuda" else 0)
    pools, per_node = pool_sizes(trainer.resource_pools), trainer.n_gpus_per_node
    counts = {"": trainer.nnodes * per_node} | {name: size.devices for name, size in pools.items()}
    on_a_node = {"": per_node} | {name: size.n_gpus_per_node for name, size in pools.items()}
    return placed(plans, counts, per_node=on_a_node)


def scoring_plan(
    engines: Sequence[EnginePlan], *, budget_bytes: int, host_bytes: int | None = None
) -> MemoryPlan:
    """The plan where there is no policy: offline scoring, evaluation, the HTTP service."""
    return plan_of(engine_claims(engines), budget_bytes, host_bytes)


def budget_of(plan: MemoryPlan) -> Budget:
    """What the engines of each place may hold by this plan."""
    return Budget(
        {place: Room(plan.scoring_bytes(place), plan.idle_bytes(place)) for place in plan.places()}
    )


def plan_of(claims: Sequence[Claim], budget_bytes: int, host_bytes: int | None) -> MemoryPlan:
    """One budget for every GPU (CPU: the machine), one for host memory."""
    devices = dict.fromkeys(device for claim in claims for device in claim.devices)
    budgets = {device: budget_bytes for device in devices if device != HOST_MEMORY}
    return MemoryPlan(
        claims,
        budgets
        | ({HOST_MEMORY: host_bytes} if HOST_MEMORY in devices and host_bytes is not None else {}),
    )


def engine_claims(engines: Sequence[EnginePlan]) -> list[Claim]:
    """One claim per engine on its devices, and one on host memory where it keeps its weights
    there."""
    claims = [_engine(plan) for plan in engines]
    return claims + [
        host(plan.label, f"weights of {Path(plan.spec.path).name}, asleep", plan.host_bytes)
        for plan in engines
        if plan.host_bytes
    ]


def _engine(plan: EnginePlan) -> Claim:
    spec, resident = plan.spec, plan.residency == "resident"
    how = "resident" if resident else f"{plan.residency}, {plan.put_away}"
    width = "".join(
        f" {word}{n}"
        for word, n in (("tp", spec.tensor_parallel_size), ("x", spec.replicas))
        if n > 1
    )
    return Claim(
        who=plan.label,
        what=f"{Path(spec.path).name} {spec.name}/{spec.runner} {spec.dtype}{width}, {how}",
        awake_bytes=plan.awake_bytes,
        away_bytes=plan.awake_bytes if resident else plan.away_bytes,
        # A pool scores while others sample and train; on the policy's devices a resident engine
        # stays through all phases.
        when=PHASES if resident or plan.place else ("score",),
        devices=(
            (MEMORY,)
            if spec.device == "cpu"
            else tuple(gpu(plan.place, number) for number in plan.devices)
        ),
        place=plan.place,
        alternates=not resident,
    )


def gpu(place: str, number: int) -> str:
    """Name of a device in the plan."""
    return f"{place} gpu {number}" if place else f"gpu {number}"


def host(who: str, what: str, count: int) -> Claim:
    """Host memory held through all phases."""
    return Claim(
        who=who, what=what, awake_bytes=count, away_bytes=count, when=PHASES, devices=(HOST_MEMORY,)
    )

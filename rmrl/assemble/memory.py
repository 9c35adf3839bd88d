"""Memory plan for reward engines, estimated from checkpoint headers before anything is loaded.

engines = prepare_engines(specs, ...)     which engines, how large, on which devices
plan    = scoring_plan(engines, ...)      or, beside a policy, rmrl.trainer.plan.memory_plan
plan.check(); budget_of(plan)             what the residency keeps to
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from rmrl.cluster.devices import Devices, cores
from rmrl.cluster.memory_plan import MEMORY, PHASES, Claim, MemoryPlan
from rmrl.cluster.pools import pool_sizes
from rmrl.config.schema import ScoreTrainerConfig, TrainerConfig
from rmrl.errors import ConfigError
from rmrl.inference.environment import exact_pinned_possible
from rmrl.rewards.residency import (
    Budget,
    EnginePlan,
    Room,
    placed,
    plan_engines,
    sized,
    with_replicas,
    within_host_memory,
)
from rmrl.rewards.specs.spec import RewardSpec

HOST_MEMORY = "host memory"
"""Memory on a machine with GPUs for engines that sleep at level 1, offloaded tensors and published
weights."""
_HOST_REMEDY = (
    "Use reward.engine.put_away=sleep2 or unload (weights are read again from disk), fewer"
    " reward.engine.replicas, param_offload=false or optimizer_offload=false (of fsdp_config or"
    " megatron), smaller models, or machines with more memory"
)
_ROUNDED = 2
"""Page-locked blocks take at most this many times their size where they are rounded up."""


class Budgets(TypedDict):
    """Bytes a plan may use."""

    budget_bytes: int
    host_bytes: int | None


def budgets(trainer: TrainerConfig | ScoreTrainerConfig, devices: Devices) -> Budgets:
    """Return the budget for each GPU, or for the machine: trainer.memory_budget_gb, else the memory
    that is free now. Return also the budget for host memory beside GPUs."""
    if trainer.memory_budget_gb is not None:
        budget_bytes = int(trainer.memory_budget_gb * 2**30)
    else:
        used = trainer.n_gpus_per_node
        for size in pool_sizes(trainer.resource_pools).values():
            used += size.n_gpus_per_node
        budget_bytes = devices.free_bytes(used)
    host_bytes = None
    if devices.kind == "cuda":
        host_bytes = devices.host_free_bytes()
    return {"budget_bytes": budget_bytes, "host_bytes": host_bytes}


def prepare_engines(
    specs: Sequence[RewardSpec],
    trainer: TrainerConfig | ScoreTrainerConfig,
    devices: Devices,
    *,
    policy_host_bytes: int = 0,
) -> list[EnginePlan]:
    """Return the rewards' engines with their sizes and devices. Place "" has trainer.nnodes x
    n_gpus_per_node from `devices`. `policy_host_bytes`: host memory on a machine with GPUs that is
    not for engines.

    Raises ConfigError for an unknown pool, for more devices than a place has, and for a checkpoint
    without weights.
    """
    per_node = {"": trainer.n_gpus_per_node}
    counts = {"": trainer.nnodes * trainer.n_gpus_per_node}
    for name, size in pool_sizes(trainer.resource_pools).items():
        per_node[name] = size.n_gpus_per_node
        counts[name] = size.devices
    plans = plan_engines(specs)
    _refuse_wide(plans, trainer)
    plans = with_replicas(plans, counts, per_node=per_node)
    plans = sized(plans, device_bytes=devices.total_bytes())
    if devices.kind == "cuda":
        host_bytes = devices.host_free_bytes() - policy_host_bytes
        if not exact_pinned_possible():
            host_bytes //= _ROUNDED
        plans = within_host_memory(plans, host_bytes)
    return placed(plans, counts, per_node=per_node)


def _refuse_wide(plans: Sequence[EnginePlan], trainer: TrainerConfig | ScoreTrainerConfig) -> None:
    """Raise ConfigError for engines on CPU with more parts than this machine has cores. With
    several machines, others may have more cores."""
    problems: list[str] = []
    for plan in plans:
        width = plan.spec.tensor_parallel_size
        if plan.spec.device == "cpu" and width > cores() and trainer.nnodes == 1:
            problems.append(
                wide_on_cpu(f"the engine of {plan.label}: tensor_parallel_size={width}")
            )
    if problems:
        raise ConfigError(problems)


def wide_on_cpu(setting: str) -> str:
    """Return the sentence on an engine with more parts than this machine has cores."""
    return (
        f"{setting} starts a process for each part, which needs a core of its own, and this machine"
        f" has {cores()} CPU cores; leave it out: one process uses all of them"
    )


def scoring_plan(
    engines: Sequence[EnginePlan], *, budget_bytes: int, host_bytes: int | None = None
) -> MemoryPlan:
    """Return the plan without a policy: offline scoring, evaluation, the HTTP service."""
    return plan_of(engine_claims(engines), budget_bytes, host_bytes)


def budget_of(plan: MemoryPlan) -> Budget:
    """Return the memory that each place's engines may hold by this plan."""
    rooms: dict[str, Room] = {
        place: Room(plan.scoring_bytes(place), plan.idle_bytes(place)) for place in plan.places()
    }
    return Budget(rooms, exact_pinned=_needs_exact_pinned(plan))


def _needs_exact_pinned(plan: MemoryPlan) -> bool:
    """Whether host memory is too small for page-locked blocks that are rounded up to powers of two.

    Exact blocks are allocated anew at every sleep, at a few GiB a second. Rounded blocks are kept.
    """
    if HOST_MEMORY not in plan.budgets:
        return False
    total = sum(
        claim.awake_bytes * (_ROUNDED if claim.pinned else 1)
        for claim in plan.claims
        if HOST_MEMORY in claim.devices
    )
    return total > plan.budgets[HOST_MEMORY]


def plan_of(claims: Sequence[Claim], budget_bytes: int, host_bytes: int | None) -> MemoryPlan:
    """Return a plan with one budget for every GPU (CPU: the machine) and one for host memory."""
    devices = itertools.chain.from_iterable(claim.devices for claim in claims)
    budgets = dict.fromkeys(devices, budget_bytes)
    if HOST_MEMORY in budgets:
        del budgets[HOST_MEMORY]
        if host_bytes is not None:
            budgets[HOST_MEMORY] = host_bytes
    if not exact_pinned_possible():
        claims = [_rounded(claim) for claim in claims]
    return MemoryPlan(claims, budgets, remedies={HOST_MEMORY: _HOST_REMEDY})


def _rounded(claim: Claim) -> Claim:
    """Count page-locked memory as torch allocates it where it cannot be told otherwise."""
    if not claim.pinned:
        return claim
    return replace(
        claim,
        what=f"{claim.what} (rounded up)",
        awake_bytes=_ROUNDED * claim.awake_bytes,
        away_bytes=_ROUNDED * claim.away_bytes,
        pinned=False,
    )


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
        for word, count in (("tp", spec.tensor_parallel_size), ("x", plan.replicas)):
            if count > 1:
                width += f" {word}{count}"
        if spec.adapters:
            width += f" +{len(spec.adapters)} LoRA"
        devices = (MEMORY,)
        if spec.device != "cpu":
            devices = tuple(gpu(plan.place, number) for number in plan.devices)
        engine = f"{spec.shown_name}/{spec.runner} {spec.dtype}{width}"
        claim = Claim(
            who=plan.label,
            what=f"{Path(spec.path).name} {engine}, {how}",
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
            claims.append(host(plan.label, weights, plan.host_bytes, pinned=True))
    return claims


def gpu(place: str, number: int) -> str:
    """Return a device's name in the plan."""
    return f"{place} gpu {number}" if place else f"gpu {number}"


def host(who: str, what: str, count: int, *, pinned: bool = False) -> Claim:
    """Return a claim on host memory through all phases. `pinned`: see Claim."""
    return Claim(
        who=who,
        what=what,
        awake_bytes=count,
        away_bytes=count,
        when=PHASES,
        devices=(HOST_MEMORY,),
        pinned=pinned,
    )

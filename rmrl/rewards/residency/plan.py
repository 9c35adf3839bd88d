"""The engines that a set of rewards needs. Rewards that name the same checkpoint and settings share
one engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from rmrl.inference.engine_facts import engine_facts
from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.specs.spec import RewardSpec

RESIDENCIES = ("on_demand", "auto", "resident")
"""From least to most time in memory. The last residency that one of the engine's rewards names
wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """One engine and the rewards that share it."""

    spec: EngineSpec
    rewards: tuple[str, ...]
    """Reward names. A role other than the reward's main one is named reward/role."""
    residency: str
    """on_demand (put away after every use), auto (stays while nobody needs the memory) or resident
    (never put away)."""
    put_away: str
    """sleep1, sleep2 or unload."""
    load_timeout_s: float
    replicas: int = 1
    """Processes that hold the same model, `spec.replicas` where the user gave a number."""
    rates_tokens: bool = False
    """A reward asks it for log-probabilities in given texts."""
    awake_bytes: int = 0
    """Estimated bytes on each device in `devices` while awake (CPU: over all the engine's processes
    together)."""
    away_bytes: int = 0
    """Estimated bytes while put away by `put_away`, counted like `awake_bytes`."""
    host_bytes: int = 0
    """Host memory held while put away on CUDA. Level 1 keeps the weights there."""
    gpu_share: float | None = None
    """Share of each device that the memory plan chose for it. None: `spec` has it."""
    devices: tuple[int, ...] = (0,)
    """Positions among the place's devices: tensor_parallel_size for each replica. CPU: always (0,),
    the machine."""

    @property
    def key(self) -> Hashable:
        return self.spec.key

    @property
    def label(self) -> str:
        """Return the engine's name in metrics and messages."""
        return "+".join(self.rewards)

    @property
    def place(self) -> str:
        """Return the engine's pool. "": the policy's devices."""
        return self.spec.pool

    def of_replica(self, number: int) -> EnginePlan:
        """Return this plan with one replica's devices (from 0)."""
        if self.spec.device == "cpu":
            return self
        width = self.spec.tensor_parallel_size
        return dataclasses.replace(
            self, devices=self.devices[number * width : (number + 1) * width]
        )


def plan_engines(specs: Sequence[RewardSpec]) -> list[EnginePlan]:
    """Return one plan per distinct engine over all rewards and roles, in order of first use. Sizes,
    devices and replica numbers that the user leaves open are set later."""
    groups: dict[Hashable, list[tuple[str, RewardSpec, EngineSpec]]] = {}
    for spec in specs:
        for role, engine in spec.engines.items():
            name = spec.name if role == "main" else f"{spec.name}/{role}"
            groups.setdefault(engine.key, []).append((name, spec, engine))
    plans: list[EnginePlan] = []
    for group in groups.values():
        names, rewards, engines = zip(*group, strict=True)
        put_away = rewards[0].put_away
        residency = max((reward.residency for reward in rewards), key=RESIDENCIES.index)
        if engines[0].by_policy:
            # The rollout engines sleep as the rollout has them sleep.
            put_away = "sleep1"
            residency = "auto"
        elif put_away == "auto":
            # CUDA keeps weights in host memory (level 1); CPU, where host memory is the device,
            # drops them (level 2). An engine that does not sleep on its device is unloaded.
            put_away = "sleep1" if engines[0].device == "cuda" else "sleep2"
            if engines[0].device not in engine_facts(engines[0].name).sleeps_on:
                put_away = "unload"
        adapters = sorted({engine.adapter for engine in engines} - {""})
        plan = EnginePlan(
            spec=dataclasses.replace(engines[0], adapter="", adapters=tuple(adapters)),
            rewards=names,
            residency=residency,
            put_away=put_away,
            load_timeout_s=max(reward.load_timeout_s for reward in rewards),
            replicas=engines[0].replicas or 1,
            rates_tokens=any(REWARD_KINDS[reward.kind].rates_tokens for reward in rewards),
        )
        plans.append(plan)
    return plans

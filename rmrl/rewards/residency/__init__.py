"""A reward model costs memory only while it scores: engines, their memory, loading and putting
away.

    plan_engines(specs) -> with_replicas(plans, devices) -> sized(plans) -> placed(plans, devices)
                        -> Residency(host_of, plans, budget=...)
"""

from __future__ import annotations

from rmrl.rewards.residency.budget import Budget, Room
from rmrl.rewards.residency.placing import (
    assign_devices,
    placed,
    turns,
    with_replicas,
    within_host_memory,
)
from rmrl.rewards.residency.plan import EnginePlan, plan_engines
from rmrl.rewards.residency.residency import Engine, Residency
from rmrl.rewards.residency.sizes import reserved, sized
from rmrl.rewards.residency.slot import PROCESS_FACTORY

__all__ = [
    "PROCESS_FACTORY",
    "Budget",
    "Engine",
    "EnginePlan",
    "Residency",
    "Room",
    "assign_devices",
    "placed",
    "plan_engines",
    "reserved",
    "sized",
    "turns",
    "with_replicas",
    "within_host_memory",
]

"""What gpu_memory_utilization=null means on CUDA: what the memory plan leaves, at most what a full
batch has use for.

Every open share grows from what its engine starts with, first all together, then each one alone,
until a phase that grows with it would not fit any more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rmrl.assemble.memory import HOST_MEMORY
from rmrl.cluster.memory_plan import PHASES, MemoryPlan, gib
from rmrl.inference.engine_facts import engine_facts
from rmrl.inference.gpu_reserve import Reserve
from rmrl.rewards.residency import EnginePlan, reserved

_SPARE_BYTES = 2 * 2**30
_SPARE_SHARE = 0.05
"""Left free on each GPU, whichever is more. On one H200, 2.5 GiB stayed beside a sleeping engine
and an offloaded trainer, where the plan had 1.2."""
_STEPS = 20


@dataclass(frozen=True, slots=True)
class Open:
    """A share that the plan chooses."""

    what: str
    """For people."""
    claims: tuple[str, ...]
    """Names of the claims in the plan that grow with it."""
    reserve: Reserve


@dataclass(frozen=True, slots=True)
class Share:
    """A chosen share. None: other engines' share. `extra_bytes`: beyond the start."""

    of_gpu: float | None
    extra_bytes: int
    line: str
    """What was chosen and why."""


def open_engines(engines: Sequence[EnginePlan], gpu_bytes: int) -> dict[str, Open]:
    """Return the reward engines whose share is not typed, by label."""
    found: dict[str, Open] = {}
    for plan in engines:
        spec = plan.spec
        if spec.device == "cpu" or spec.by_policy or spec.gpu_memory_utilization is not None:
            continue
        if engine_facts(spec.name).reserves_gpu_share:
            what = f"engine of {plan.label}: gpu_memory_utilization"
            found[plan.label] = Open(what, (plan.label,), reserved(plan, gpu_bytes))
    return found


def with_shares(engines: Sequence[EnginePlan], shares: dict[str, Share]) -> list[EnginePlan]:
    """Return the engines with the shares that were chosen for their labels."""
    changed: list[EnginePlan] = []
    for plan in engines:
        share = shares.get(plan.label)
        if share is not None:
            awake = plan.awake_bytes + share.extra_bytes
            plan = replace(plan, gpu_share=share.of_gpu, awake_bytes=awake)
        changed.append(plan)
    return changed


def chosen_shares(plan: MemoryPlan, shares: dict[str, Open], gpu_bytes: int) -> dict[str, Share]:
    """Return a share for each open one. In `plan` they have what they start with. Where not even
    that fits they keep it, and the plan's own check says what is missing."""
    if not gpu_bytes:
        return {}
    names = list(shares)
    spare = max(_SPARE_BYTES, int(_SPARE_SHARE * gpu_bytes))
    steps = dict.fromkeys(names, 0)
    for growing in (names, *([name] for name in names)):
        for step in range(1, _STEPS + 1):
            tried = {**steps, **{name: max(step, steps[name]) for name in growing}}
            if not _fits(plan, grown(plan, shares, tried), spare):
                break
            steps = tried
    return {name: _share(shares[name], steps[name], gpu_bytes) for name in names}


def _extra(open_share: Open, step: int) -> int:
    return (open_share.reserve.useful - open_share.reserve.start) * step // _STEPS


def grown(plan: MemoryPlan, shares: dict[str, Open], steps: dict[str, int]) -> MemoryPlan:
    """Return the plan with shares that have grown by so many steps."""
    claims = list(plan.claims)
    for name, share in shares.items():
        extra = _extra(share, steps[name])
        for index, claim in enumerate(claims):
            if claim.who in share.claims and HOST_MEMORY not in claim.devices:
                # An engine that is never put away holds the same in all phases.
                away = claim.away_bytes + (extra if claim.away_bytes == claim.awake_bytes else 0)
                awake = claim.awake_bytes + extra
                claims[index] = replace(claim, awake_bytes=awake, away_bytes=away)
    return replace(plan, claims=claims)


def _fits(plan: MemoryPlan, larger: MemoryPlan, spare: int) -> bool:
    """Return whether every phase fits that needs more in the larger plan."""
    for device, budget in plan.budgets.items():
        for phase in PHASES:
            peak = larger.peak(phase, device)
            if peak > plan.peak(phase, device) and peak > budget - spare:
                return False
    return True


def _share(share: Open, step: int, gpu_bytes: int) -> Share:
    """Round to hundredths: down, but for what an engine has to have."""
    reserve = share.reserve
    start = math.ceil(100 * reserve.start / gpu_bytes)
    of_gpu = max(start, 100 * (reserve.start + _extra(share, step)) // gpu_bytes) / 100
    count = int(of_gpu * gpu_bytes)
    reason = "all that the plan leaves"
    if step == 0:
        reason = "it needs that to start"
    elif step == _STEPS:
        reason = "a full batch has no use for more"
    line = f"{share.what}={of_gpu}: {gib(count)} of each GPU, {reason}"
    return Share(of_gpu, max(0, count - reserve.start), line)

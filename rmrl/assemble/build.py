"""Build a `Scorer` from resolved specs: its engines' hosts and their memory budget."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from rmrl.cluster.devices import cores, joined_address
from rmrl.cluster.local import LocalHost
from rmrl.cluster.pools import Pools, pool_sizes, reserve_pools
from rmrl.config.schema import RewardConfig, ScoreTrainerConfig
from rmrl.inference.engine_facts import engine_facts
from rmrl.inference.environment import engine_environment
from rmrl.interfaces import ProcessHost
from rmrl.rewards.residency import Budget, EnginePlan, Residency
from rmrl.rewards.session.scorer import Scorer
from rmrl.rewards.specs.spec import RewardSpec

if TYPE_CHECKING:
    from rmrl.cluster.worker_group import Allocation

_log = logging.getLogger(__name__)


def tokenizers(trust_remote_code: bool) -> Callable[[str], Any]:
    """Return a function that loads a checkpoint's tokenizer, once per checkpoint."""

    @cache
    def tokenizer(path: str) -> Any:
        from rmrl.tokenizer import (
            load_tokenizer,
        )  # here: transformers takes seconds to import, and rules need none of it

        return load_tokenizer(path, trust_remote_code=trust_remote_code)

    return tokenizer


def make_scorer(
    specs: Sequence[RewardSpec],
    settings: RewardConfig,
    *,
    residency: Residency,
    trust_remote_code: bool,
) -> Scorer:
    """Return a run's scorer. The scorer owns `residency` from here on. Reward models' tokenizers
    are loaded when first needed."""
    return Scorer(
        specs,
        settings,
        residency=residency,
        tokenizer=tokenizers(trust_remote_code),
        rule_workers=settings.rule_workers or min(8, cores()),
    )


def make_residency(
    engines: Sequence[EnginePlan],
    budget: Budget,
    *,
    allocation: Allocation,
    pools: Pools,
    policy: ProcessHost | None = None,
) -> Residency:
    """Build the residency. Engines with place "" are hosted on `allocation`, others in their pools.
    `policy` has the rollout engines, where they judge."""

    def host_of(plan: EnginePlan) -> ProcessHost:
        if plan.spec.by_policy:
            assert policy is not None
            return policy
        environment = _environment(plan, budget)
        first, width = plan.devices[0], len(plan.devices)
        return (
            pools.host(plan.place, first, environment, devices=width)
            if plan.place
            else allocation.host(first, environment, devices=width)
        )

    return Residency(host_of, engines, budget=budget)


def slots(trainer_devices: int, resource_pools: Mapping[str, Any]) -> int:
    """Return how many ranks a run reserves in all: the policy's and the pools'."""
    return trainer_devices + sum(size.devices for size in pool_sizes(resource_pools).values())


def runs_locally(
    engines: Sequence[EnginePlan], trainer: ScoreTrainerConfig, *, ray_init: Mapping[str, Any]
) -> bool:
    """Return whether processes on this machine are enough for the engines: one device each or a
    running server, no pools, no second machine and no cluster to join."""
    joins = joined_address(ray_init) is not None
    if engines and (joins or trainer.resource_pools or trainer.nnodes > 1):
        return False
    return all(
        engine_facts(plan.spec.name).single_process or "base_url" in plan.spec.kwargs
        for plan in engines
    )


@asynccontextmanager
async def standalone_scorer(
    specs: Sequence[RewardSpec],
    settings: RewardConfig,
    *,
    engines: Sequence[EnginePlan],
    budget: Budget,
    device: str,
    trainer: ScoreTrainerConfig,
    ray_init: Mapping[str, Any],
) -> AsyncIterator[Scorer]:
    """Yield a scorer without a trainer beside it. The scorer's processes end with the block. Rules,
    servers and engines that `runs_locally` start no Ray."""
    async with AsyncExitStack() as stack:
        if runs_locally(engines, trainer, ray_init=ray_init):
            residency = Residency(partial(_local_host, budget), engines, budget=budget)
        else:
            _log.info("starting Ray, or joining its cluster")
            allocation, pools = await stack.enter_async_context(
                _places(trainer, device=device, ray_init=ray_init)
            )
            residency = make_residency(engines, budget, allocation=allocation, pools=pools)
        scorer = make_scorer(
            specs,
            settings,
            residency=residency,
            trust_remote_code=trainer.trust_remote_code,
        )
        stack.push_async_callback(scorer.close)
        await residency.load_resident()
        yield scorer


@asynccontextmanager
async def _places(
    trainer: ScoreTrainerConfig, *, device: str, ray_init: Mapping[str, Any]
) -> AsyncIterator[tuple[Allocation, Pools]]:
    """Yield Ray, the devices for engines with place "" (on CPU one rank is enough: engines share
    the machine), and the pools."""
    from rmrl.cluster.session import ray_session  # here: they import Ray
    from rmrl.cluster.worker_group import allocate_ranks

    world = trainer.nnodes * trainer.n_gpus_per_node if device == "cuda" else 1
    async with AsyncExitStack() as stack:
        stack.enter_context(ray_session(ray_init, processes=slots(world, trainer.resource_pools)))
        allocation = await allocate_ranks(world, device=device, nnodes=trainer.nnodes)
        stack.push_async_callback(allocation.release)
        pools = await reserve_pools(pool_sizes(trainer.resource_pools), device=device)
        stack.push_async_callback(pools.release)
        yield allocation, pools


def _local_host(budget: Budget, plan: EnginePlan) -> ProcessHost:
    environment = _environment(plan, budget)
    return LocalHost(environment, devices=plan.devices if plan.spec.device == "cuda" else ())


def _environment(plan: EnginePlan, budget: Budget) -> dict[str, str]:
    """Return the environment variables for an engine's process."""
    spec = plan.spec
    return engine_environment(
        device=spec.device,
        threads=spec.threads,
        batch_invariant=spec.batch_invariant,
        exact_pinned=budget.exact_pinned,
        # Judges and teachers need no log-probabilities after the temperature, nor do scores.
        second_runner=True,
    )

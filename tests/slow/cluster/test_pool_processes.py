"""Real processes: engines in a pool and on the policy's devices, swapped within a budget; replicas;
nothing is left."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import psutil
import pytest

from rmrl.cluster.pools import Pools, pool_sizes, reserve_pools
from rmrl.cluster.session import ray_session
from rmrl.cluster.worker_group import Allocation, allocate_ranks
from rmrl.errors import InfrastructureError
from rmrl.inference.reward_engine_base import EngineSpec, PoolingRequest
from rmrl.interfaces import ProcessHost
from rmrl.rewards.residency import Budget, EnginePlan, Residency, Room, placed, plan_engines, sized
from rmrl.rewards.specs.spec import RewardSpec
from tests.patience import expires
from tests.support import fakes

ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
FAKE = EngineSpec(
    path="/models/none", runner="pooling", name=fakes.REWARD_ENGINE, dtype="bfloat16", max_model_len=None, max_num_seqs=8, max_num_batched_tokens=512,
    tensor_parallel_size=1, gpu_memory_utilization=0.5, kv_cache_bytes=1, device="cpu", threads=1,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def ray_here() -> Iterator[None]:
    with ray_session({"num_cpus": 4}, processes=1):
        yield


@pytest.fixture
async def allocation() -> AsyncIterator[Allocation]:
    made = await allocate_ranks(1, device="cpu", nnodes=1)
    yield made
    await made.release()


@pytest.fixture
async def pools() -> AsyncIterator[Pools]:
    made = await reserve_pools(pool_sizes({"judges": {"n_gpus_per_node": 2}}), device="cpu")
    yield made
    await made.release()


def reward(name: str, **changes: object) -> RewardSpec:
    engine = dataclasses.replace(FAKE, path=f"/models/{name}", **changes)  # type: ignore[arg-type]
    return RewardSpec(
        name=name, kind="bradley_terry", weight=1.0, engines={"main": engine}, put_away="unload"
    )


def residency_of(
    allocation: Allocation, pools: Pools, *rewards: RewardSpec, budget: Budget | None = None
) -> Residency:
    def host_of(plan: EnginePlan) -> ProcessHost:
        first, count = plan.devices[0], len(plan.devices)
        if plan.place:
            return pools.host(plan.place, first, ENVIRONMENT, devices=count)
        return allocation.host(first, ENVIRONMENT, devices=count)

    return Residency(
        host_of, placed(sized(plan_engines(rewards)), {"": 1, "judges": 2}), budget=budget
    )


async def values(residency: Residency, key: object) -> list[int]:
    async with residency.use(key) as engine:  # type: ignore[arg-type]
        outputs = await engine.call(
            "classify", [PoolingRequest((n,)) for n in range(5)], timeout_s=60.0
        )
    return [round((output.value + 1) * 500) for output in outputs]


def actors() -> int:
    """Living processes of this Ray session that hold an object."""
    found = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            found += "".join(process.cmdline()[:1]).startswith("ray::SyncProcess")
    return found


async def test_a_pool_keeps_its_engine_while_others_are_swapped(
    allocation: Allocation, pools: Pools
) -> None:
    held = {"awake_bytes": 10}
    rewards = (
        reward("a", kwargs=held),
        reward("b", kwargs=held),
        reward("p", kwargs=held, pool="judges"),
    )
    residency = residency_of(
        allocation, pools, *rewards, budget=Budget({"": Room(10, 0), "judges": Room(10, 10)})
    )
    before = actors()
    keys = [spec.engines["main"].key for spec in rewards]
    for key in keys:
        assert await values(residency, key) == [0, 1, 2, 3, 4]
    assert residency.states == {"a": "unloaded", "b": "awake", "p": "awake"}
    assert actors() == before + 2
    await residency.settle()
    assert residency.states == {"a": "unloaded", "b": "unloaded", "p": "awake"}
    assert residency.turn_of(keys[0]) == residency.turn_of(keys[1]) != residency.turn_of(keys[2])
    await residency.close()
    assert actors() == before


async def test_replicas_in_a_pool_share_requests_and_die_together(
    allocation: Allocation, pools: Pools
) -> None:
    rewards = (reward("r", pool="judges", replicas=2, kwargs={"die_on_call": 2}),)
    residency = residency_of(allocation, pools, *rewards)
    (key,) = residency.order()
    before = actors()
    assert await values(residency, key) == [0, 1, 2, 3, 4]
    assert before == 3  # the anchors of three ranks
    assert actors() == before + 2
    assert await values(residency, key) == [
        0,
        1,
        2,
        3,
        4,
    ]  # both died on their second call, were started again and answered
    await residency.close()
    assert actors() == before


async def test_a_pool_larger_than_the_cluster_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    # For one that the cluster could hold only if more machines came.
    monkeypatch.setattr("rmrl.cluster.worker_group.JOIN_TIMEOUT_S", expires(1.0))
    sizes = pool_sizes({"small": {}, "huge": {"n_gpus_per_node": 50}})
    with pytest.raises(
        InfrastructureError,
        match=r"trainer\.resource_pools\.huge .* asks for 50 processes on 1 machine",
    ):
        await reserve_pools(sizes, device="cpu")
    again = await reserve_pools(
        pool_sizes({"all": {"n_gpus_per_node": 4}}), device="cpu"
    )  # what `small` had is free again
    await again.release()

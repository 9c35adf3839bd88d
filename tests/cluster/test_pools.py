"""trainer.resource_pools is read without Ray, and its mistakes are told together; ranks of one
machine are neighbours."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rmrl.cluster.pools import Pools, PoolSize, pool_sizes
from rmrl.cluster.worker_group import Allocation, RankLocation, neighbours
from rmrl.errors import ConfigError, InfrastructureError


def location(node: str, *devices: str) -> RankLocation:
    return RankLocation(
        node_id=node * 56, address=node, devices=devices
    )  # Ray wants ids of this length


def allocation(*locations: RankLocation) -> Allocation:
    return Allocation(group=None, anchors=[], locations=list(locations), init_method="")  # type: ignore[arg-type]


def test_sizes_and_their_defaults() -> None:
    sizes = pool_sizes({"judges": {"nnodes": 2, "n_gpus_per_node": 4}, "small": {}})
    assert sizes == {"judges": PoolSize(nnodes=2, n_gpus_per_node=4), "small": PoolSize()}
    assert sizes["judges"].devices == 8
    assert pool_sizes({}) == {}


def test_all_mistakes_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        pool_sizes(
            {"a b": {}, "two": 2, "odd": {"gpus": 1, "nnodes": 0}, "yes": {"n_gpus_per_node": True}}
        )
    assert caught.value.problems == [
        (
            "trainer.resource_pools.a b: a pool's name is a word of letters, digits and"
            " underscores, e.g. judges"
        ),
        (
            "trainer.resource_pools.two=2: give"
            " trainer.resource_pools.two.n_gpus_per_node=<devices>, and nnodes where it is more"
            " than 1"
        ),
        "trainer.resource_pools.odd.gpus: no such entry; known: nnodes, n_gpus_per_node",
        "trainer.resource_pools.odd.nnodes=0: give a whole number, at least 1",
        "trainer.resource_pools.yes.n_gpus_per_node=True: give a whole number, at least 1",
    ]


def test_reading_pools_imports_no_ray() -> None:
    check = (
        "import sys, rmrl.cluster.pools, rmrl.cluster.memory_plan, rmrl.trainer.plan; print('ray' in"
        " sys.modules, 'vllm' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_a_host_sees_its_devices() -> None:
    pools = Pools(
        {"judges": allocation(location("a", "2"), location("a", "3"), location("a", "5"))}
    )
    host = pools.host("judges", 1, {"OMP_NUM_THREADS": "1"}, devices=2)
    assert host.environment == {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "3,5"}
    assert Pools({"cpu": allocation(location("a"))}).host("cpu", 0, {}).environment == {}


def test_devices_spread_over_machines_are_refused() -> None:
    with pytest.raises(
        InfrastructureError,
        match="needs 2 devices on one machine and the cluster reserved 1 of them there",
    ):
        allocation(location("a", "0"), location("b", "0")).host(0, {}, devices=2)


def test_ranks_of_one_machine_stand_together() -> None:
    mixed = [
        location("a", "1"),
        location("b", "0"),
        location("a", "0"),
        location("a", "10"),
        location("b", "1"),
    ]
    assert neighbours(mixed) == [2, 0, 3, 1, 4]
    assert neighbours([location("a"), location("a")]) == [0, 1]

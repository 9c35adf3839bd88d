"""A file reaches every node of a real cluster of two (two raylets on this machine), whole, and is
gone afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rmrl.cluster import file_broadcast
from rmrl.cluster import processes as ray_processes
from rmrl.cluster.processes import RayHost, RayProcess, node_lines
from rmrl.cluster.session import ray_session
from rmrl.cluster.worker_group import allocate_ranks
from rmrl.errors import InfrastructureError
from tests.patience import PATIENCE_S, expires
from tests.trainer.job import left_in_shared_memory, shared_memory

pytestmark = pytest.mark.alone
PARTS = "tests.cluster.process_parts"


@pytest.fixture(scope="module", autouse=True)
def two_nodes() -> Iterator[None]:
    options = {"num_cpus": 2, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
    cluster.add_node(**options)
    with ray_session({"address": cluster.address}, processes=1):
        cluster.wait_for_nodes()
        yield
    cluster.shutdown()


@pytest.fixture
async def processes() -> AsyncIterator[list[RayProcess]]:
    """One on this node, one on the other."""
    nodes = sorted(
        (node["NodeID"] for node in ray.nodes()),
        key=lambda node: node != ray.get_runtime_context().get_node_id(),
    )
    made = []
    for number, node in enumerate(nodes):
        host = RayHost(placement=NodeAffinitySchedulingStrategy(node_id=node, soft=False))
        made.append(await host.spawn(f"{PARTS}:Counter", {}, name=f"c{number}"))
    yield made
    for process in made:
        await process.kill()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process on another node may take long to end."""
    monkeypatch.setattr(ray_processes, "_KILL_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(ray_processes, "_CHILDREN_TIMEOUT_S", PATIENCE_S)


async def test_each_node_gets_a_copy_of_its_own(
    processes: list[RayProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = shared_memory()
    monkeypatch.setattr(file_broadcast, "CHUNK_BYTES", 1000)
    content = np.random.default_rng(0).integers(0, 256, 10_500, dtype=np.uint8).tobytes()
    files = await file_broadcast.node_files(processes[0], processes, timeout_s=60.0)
    path = await files.place("rmrl-test-relay", len(content))
    Path(path).write_bytes(content)
    paths = await files.spread("rmrl-test-relay", path)
    assert list(paths) == [process.node_id for process in processes]
    assert len(set(paths.values())) == 2
    assert all(
        Path(copy).read_bytes() == content for copy in paths.values()
    )  # eleven chunks, the last a half
    await files.remove("rmrl-test-relay")
    assert left_in_shared_memory(before, of="rmrl-test-relay") == set()
    await files.close()


async def test_a_copy_that_cannot_be_made_is_an_error_and_leaves_nothing(
    processes: list[RayProcess],
) -> None:
    before = shared_memory()
    files = await file_broadcast.node_files(
        processes[1], processes[:1], timeout_s=60.0
    )  # from the other node to this one
    path = await files.place("rmrl-test-relay", 10)
    with pytest.raises(InfrastructureError, match=r"relay-\w+\.size failed: FileNotFoundError"):
        await files.spread("rmrl-test-relay", path)
    Path(path).write_bytes(b"half")
    Path(path).with_name(f".{Path(path).name}.77.partial").write_bytes(b"a writer that was killed")
    await files.remove("rmrl-test-relay")
    assert left_in_shared_memory(before, of="rmrl-test-relay") == set()
    await files.close()


async def test_on_one_node_there_is_no_relay(processes: list[RayProcess]) -> None:
    files = await file_broadcast.node_files(processes[0], processes[:1], timeout_s=60.0)
    assert not files.relays
    path = await files.place("rmrl-test-relay", 10)
    assert await files.spread("rmrl-test-relay", path) == {processes[0].node_id: path}


async def test_ranks_are_spread_over_the_nodes_and_named() -> None:
    allocation = await allocate_ranks(4, device="cpu", nnodes=2)
    here = ray.get_runtime_context().get_node_id()
    assert [location.node_id == here for location in allocation.locations] == [
        True,
        True,
        False,
        False,
    ]
    made = [
        await allocation.host(rank, {}).spawn(f"{PARTS}:Counter", {}, name=f"train-{rank}")
        for rank in range(4)
    ]
    lines = node_lines(made)
    assert lines[0] == f"node {made[0].address} ({here[:8]}): train-0, train-1"
    assert lines[1].endswith("): train-2, train-3")
    assert node_lines(made[:2]) == []
    for process in made:
        await process.kill()
    await allocation.release()
    with pytest.raises(
        InfrastructureError,
        match=r"asks for 6 processes on 2 machine\(s\), 3 on each; the cluster has 2 machine\(s\)",
    ):
        await allocate_ranks(6, device="cpu", nnodes=2, timeout_s=expires(1.0))


async def test_a_process_on_another_node_is_killed_with_its_children(
    processes: list[RayProcess],
) -> None:
    import psutil

    far = processes[1]
    assert far.family is None  # its number means nothing here
    child = await far.call("start_child", timeout_s=30)
    await far.kill()
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE

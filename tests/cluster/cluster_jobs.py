"""Small drivers that tests/slow/cluster/test_cluster_ends.py runs in processes of their own: `python -m
tests.cluster.cluster_jobs <name>`."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import ray
from ray.cluster_utils import Cluster

from rmrl.cluster import session, watch
from rmrl.cluster.processes import RayHost
from rmrl.cluster.session import ray_session
from rmrl.cluster.watch import unless_lost
from rmrl.exit import exit_code

PARTS = "tests.cluster.process_parts"


def daemon(name: str) -> psutil.Process:
    """Ray's process of that program, a child of this one."""
    return next(
        child for child in psutil.Process().children() if Path(child.cmdline()[0]).name == name
    )


async def busy() -> None:
    """Three processes, one of them in a call; says where its cluster is, and waits."""
    with ray_session({"num_cpus": 2}, processes=1):
        working = await RayHost().spawn(f"{PARTS}:Counter", {}, name="working")
        await RayHost(asynchronous=True).spawn(f"{PARTS}:Stream", {}, name="stream")
        await working.call("start_child", timeout_s=30)
        print(ray.get_runtime_context().gcs_address, flush=True)
        await unless_lost(working.call("sleep", 600, timeout_s=600))


async def store_lost() -> None:
    """The node process is killed while the driver holds an array of its object store, and gives it
    back."""
    with ray_session({"num_cpus": 1}, processes=1):
        array = ray.get(ray.put(np.zeros(2**20)))
        daemon("raylet").kill()
        await asyncio.sleep(0.5)
        del array
        await unless_lost(asyncio.sleep(600))


async def head_lost(address: str = "local") -> None:
    """The head is killed while the driver waits; says how many seconds later the watch has
    noticed, and which process Ray runs on this node."""
    with ray_session({"num_cpus": 1, "address": address}, processes=1):
        print(daemon("raylet").pid, flush=True)
        killed = time.monotonic()
        daemon("gcs_server").kill()
        try:
            await unless_lost(asyncio.sleep(600))
        finally:
            print(f"{time.monotonic() - killed:.2f}", flush=True)


async def joined_head_lost() -> None:
    """The same of a cluster that is there already, which may come back for a twentieth of Ray's
    patience here."""
    session.TOLERATED = 0.05
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "object_store_memory": 100 * 2**20,
            "include_dashboard": False,
        },
    )
    await head_lost(cluster.address)


async def blocked() -> None:
    """The same as `blocked_for_long`, which ends after a share of Ray's patience that no test has to
    wait for."""
    watch.DRIVER_ENDS = 0.06
    await blocked_for_long()


async def blocked_for_long() -> None:
    """The head is killed while the driver is in a call that does not return."""
    with ray_session({"num_cpus": 1}, processes=1):
        daemon("gcs_server").kill()
        ray.get(ray.remote(lambda: 1).remote())


if __name__ == "__main__":
    with exit_code() as code:
        asyncio.run(globals()[sys.argv[1]]())
    sys.exit(code.value)

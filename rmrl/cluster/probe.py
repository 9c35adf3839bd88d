"""Start Ray as a run does, or join its cluster, and run one task."""

# pyright: basic
# Ray's decorators are untyped.

from __future__ import annotations

import time

import ray

from rmrl.cluster.session import ray_session

_TASK_TIMEOUT_S = 60.0


def probe() -> dict[str, float | str]:
    """Return Ray's version, the cluster's nodes and resources, and the seconds until the first
    task had run. Raises InfrastructureError where Ray cannot be started or joined."""
    start = time.perf_counter()
    with ray_session({}, processes=1):
        ray.get(ray.remote(_nothing).remote(), timeout=_TASK_TIMEOUT_S)
        resources = ray.cluster_resources()
        nodes = [node for node in ray.nodes() if node["Alive"]]
        return {
            "version": ray.__version__,
            "seconds": time.perf_counter() - start,
            "nodes": len(nodes),
            "cpus": resources.get("CPU", 0.0),
            "gpus": resources.get("GPU", 0.0),
        }


def _nothing() -> None:
    """Run as a task."""

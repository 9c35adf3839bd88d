"""A real Ray cluster of two nodes: two raylets on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WAIT_S = 300.0


@contextmanager
def cluster_of_two(**node: Any) -> Iterator[str]:
    """Address of a cluster, whose nodes have the resources `node`, for the time of the block."""
    from ray.cluster_utils import Cluster

    # With `wait` a node has 30 s to start.
    cluster = Cluster(
        initialize_head=True, head_node_args={**node, "include_dashboard": False, "wait": False}
    )
    try:
        cluster.wait_for_nodes(WAIT_S)
        cluster.add_node(**node, wait=False)
        cluster.wait_for_nodes(WAIT_S)
        yield str(cluster.address)
    finally:
        cluster.shutdown()

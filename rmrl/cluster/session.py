"""Start Ray, or join an existing cluster; at the end, stop what was started."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import ray

from rmrl.cluster.daemons import Daemons
from rmrl.cluster.devices import joined_address
from rmrl.cluster.node_end import call_at_end, hold_store_connection
from rmrl.cluster.watch import (
    TOLERATED,
    TOLERATED_S,
    ClusterWatch,
    Listener,
    ray_patience_s,
    watching,
)
from rmrl.errors import ClusterLostError, InfrastructureError
from rmrl.startup import quick_imports

_log = logging.getLogger(__name__)

_OBJECT_STORE_BYTES = 2 * 2**30


@contextmanager
def ray_session(settings: Mapping[str, Any], *, processes: int) -> Iterator[None]:
    """Provide Ray for the block's time. A cluster given by `settings["address"]` or
    RAY_ADDRESS is joined and left as it is.

    `processes`: training processes on this machine; a machine with fewer cores still offers as many
    slots. The cluster's head and this machine's node process are watched, see `rmrl.cluster.watch`.
    After their loss the process that leaves the block ends without Python's usual clean-up.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's own 15 starves training beside any other busy program.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # With the check the agent prints the log of a killed node process.
    os.environ.setdefault("RAY_enable_pipe_based_agent_to_parent_health_check", "0")
    options: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": "ERROR",
        "include_dashboard": False,
        **settings,
    }
    joins = joined_address(options) is not None
    if joins:
        for key in ("num_cpus", "include_dashboard", "object_store_memory"):
            options.pop(key, None)
    else:
        # Without an address Ray joins any cluster that runs on this machine.
        options["address"] = "local"
        options.setdefault("num_cpus", max(os.cpu_count() or 1, processes))
        options.setdefault("object_store_memory", _OBJECT_STORE_BYTES)
    if ray.is_initialized():
        yield
        return
    before = psutil.Process().children()
    with quick_imports():  # Ray imports what its dashboard needs
        if joins:
            _join(options)
        else:
            _start(options, before)
    daemons = Daemons.started_since(before)
    watch = _watch(daemons, joins=joins)
    try:
        with watching(watch):
            yield
        if watch.loss is not None:
            raise watch.error()
    finally:
        if watch.loss is None:
            ray.shutdown()
        else:
            daemons.end()
            # Runs before the handlers that Ray has registered.
            atexit.register(_leave)


def _watch(daemons: Daemons, *, joins: bool) -> ClusterWatch:
    """Return the watch on the head and this machine's node process, not yet started."""
    patience_s = ray_patience_s()
    watch = ClusterWatch(
        listeners=_listeners(),
        tolerated_s=TOLERATED * patience_s if joins else TOLERATED_S,
        patience_s=patience_s,
        end_processes=daemons.end,
    )
    # A head behind a proxy, for example, does not answer although it is alive.
    if not watch.all_answer():
        watch.listeners = ()
    node = daemons.node()
    if node is not None and len(watch.listeners) > 1:
        raylet = watch.listeners[1]

        def node_ended() -> None:
            if not watch.stopped:
                hold_store_connection()
                watch.lose(raylet, watch.clock())
                daemons.end_agents()

        call_at_end(node.pid, node_ended)
    return watch


def _listeners() -> list[Listener]:
    """Return the head's and this machine's node process's listeners."""
    context = ray.get_runtime_context()
    host, _, port = context.gcs_address.rpartition(":")
    head = Listener(
        name="the head process of the Ray cluster (gcs_server)",
        host=host.strip("[]"),
        port=int(port),
    )
    listeners = [head]
    for node in ray.nodes():
        if node["NodeID"] == context.get_node_id():
            raylet = Listener(
                name="Ray's node process on this machine (raylet)",
                host=node["NodeManagerAddress"],
                port=node["NodeManagerPort"],
            )
            listeners.append(raylet)
    return listeners


def _leave() -> None:
    """End the process after a loss: Ray's threads would end it with code 1 at Python's exit."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(ClusterLostError.exit_code)


def _join(options: Mapping[str, Any]) -> None:
    where = options.get("address") or os.environ.get("RAY_ADDRESS")
    try:
        ray.init(**options)
    except (ConnectionError, TimeoutError, RuntimeError, ValueError, OSError) as error:
        raise InfrastructureError(
            f"Ray could not be joined at {where} ({type(error).__name__}: {error}); "
            "start it there, or unset RAY_ADDRESS and ray_kwargs.ray_init.address"
        ) from error


def _start(options: Mapping[str, Any], before: Sequence[psutil.Process]) -> None:
    """Start this run's own cluster. A start that fails is repeated once, its remains ended.

    `before`: children that are not Ray's.
    """
    try:
        ray.init(**options)
        return
    except ValueError as error:  # an option with an impossible value
        raise InfrastructureError(f"{_not_started(error)}; see ray_kwargs.ray_init") from error
    except Exception as error:  # Ray raises Exception itself when a process is late
        _log.warning(f"{_not_started(error)}; it is tried once more")
        _clear(before)
    try:
        ray.init(**options)
    except Exception as error:
        _clear(before)
        raise InfrastructureError(f"{_not_started(error)}; see ray_kwargs.ray_init") from error


def _clear(before: Sequence[psutil.Process]) -> None:
    daemons = Daemons.started_since(before)
    with suppress(Exception):
        ray.shutdown()
    daemons.end()


def _not_started(error: Exception) -> str:
    return f"Ray could not be started ({type(error).__name__}: {error})"

"""Start Ray, or join the cluster that is there; end what was started."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray

from rmrl.errors import InfrastructureError

_OBJECT_STORE_BYTES = 2 * 2**30


@contextmanager
def ray_session(settings: Mapping[str, Any], *, processes: int) -> Iterator[None]:
    """Ray for the time of the block. A cluster given by `settings["address"]` or RAY_ADDRESS is joined and left as it is.

    `processes`: training processes on this machine; a machine with fewer cores still offers as many slots.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's own 15 starves training beside any other busy program
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False, **settings}
    if _joins(options):
        options = {key: value for key, value in options.items() if key not in ("num_cpus", "include_dashboard", "object_store_memory")}
    else:
        options["address"] = "local"  # Ray would join any cluster that somebody started on this machine
        options.setdefault("num_cpus", max(os.cpu_count() or 1, processes))
        options.setdefault("object_store_memory", _OBJECT_STORE_BYTES)
    started_here = not ray.is_initialized()
    if started_here:
        _start(options)
    try:
        yield
    finally:
        if started_here:
            ray.shutdown()


def _joins(options: Mapping[str, Any]) -> bool:
    """A cluster was named, here or in RAY_ADDRESS; "local" always starts one."""
    return bool(options.get("address") or os.environ.get("RAY_ADDRESS")) and options.get("address") != "local"


def _start(options: Mapping[str, Any]) -> None:
    try:
        ray.init(**options)
    except (ConnectionError, TimeoutError, RuntimeError, ValueError, OSError) as error:
        where = (options.get("address") or os.environ.get("RAY_ADDRESS")) if _joins(options) else None
        raise InfrastructureError(
            f"Ray could not be {f'joined at {where}' if where else 'started'} ({type(error).__name__}: {error}); "
            + ("start it there, or unset RAY_ADDRESS and ray_kwargs.ray_init.address" if where else "see ray_kwargs.ray_init")
        ) from error

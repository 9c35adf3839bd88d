"""Processes made by Ray: spawn, call with a deadline, stream, kill. Ray's errors become ours here and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from rmrl.cluster.actors import AsyncProcess, SyncProcess
from rmrl.errors import EngineLostError, InfrastructureError, RmrlError, StallError

SPAWN_TIMEOUT_S = 300.0
Placement = PlacementGroupSchedulingStrategy | NodeAffinitySchedulingStrategy | None


@dataclass(frozen=True, slots=True)
class RayProcess:
    """A living process. Implements rmrl.types.ProcessHandle."""

    actor: Any
    name: str

    async def call(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        """Result of the method. EngineLostError: the process died; StallError: past the deadline; our own errors come through."""
        return await finish(self.actor.call.remote(method, *args, **kwargs), what=f"{self.name}.{method}", timeout_s=timeout_s)

    async def stream(self, method: str, *args: Any, timeout_s: float) -> AsyncIterator[Any]:
        """Parts of an async generator as they come; the deadline holds for each part."""
        parts = self.actor.stream.options(num_returns="streaming").remote(method, *args)
        what = f"{self.name}.{method}"
        iterator = parts.__aiter__()
        while True:
            try:
                reference = await asyncio.wait_for(iterator.__anext__(), timeout_s)
            except StopAsyncIteration:
                return
            except RayError as error:
                raise _ours(error, what) from error
            except TimeoutError as error:
                raise StallError(f"{what} gave nothing for {timeout_s:g} s") from error
            yield await finish(reference, what=what, timeout_s=timeout_s)

    async def kill(self) -> None:
        """End the process now; its memory returns to the machine. Waits until it is gone."""
        pid_gone = self.actor.pid.remote()
        with contextlib.suppress(RayError):
            ray.kill(self.actor)
        with contextlib.suppress(RayError, TimeoutError):
            await asyncio.wait_for(_future(pid_gone), 10.0)


@dataclass(frozen=True, slots=True)
class RayHost:
    """Makes processes with the same environment on the same node. Implements rmrl.types.ProcessHost."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables set before the process imports anything."""
    placement: Placement = None
    num_cpus: float = 0.0
    num_gpus: float = 0.0
    asynchronous: bool = False

    async def spawn(self, factory: str, settings: Mapping[str, Any], *, name: str) -> RayProcess:
        """A process that has built `factory(**settings)`."""
        options: dict[str, Any] = {
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            "runtime_env": {"env_vars": dict(self.environment)},
            "max_restarts": 0,
        }
        if self.placement is not None:
            options["scheduling_strategy"] = self.placement
        if self.asynchronous:
            options["max_concurrency"] = 1000
        cls = ray.remote(AsyncProcess if self.asynchronous else SyncProcess)
        process = RayProcess(cls.options(**options).remote(), name)
        try:
            await finish(process.actor.make.remote(factory, dict(settings)), what=f"starting {name}", timeout_s=SPAWN_TIMEOUT_S)
        except BaseException:
            await process.kill()
            raise
        return process


async def finish(reference: Any, *, what: str, timeout_s: float) -> Any:
    """Await an object reference with a deadline and with our errors."""
    try:
        return await asyncio.wait_for(_future(reference), timeout_s)
    except RayError as error:  # before TimeoutError: one raised by the method itself arrives as both
        raise _ours(error, what) from error
    except TimeoutError as error:
        raise StallError(f"{what} did not finish within {timeout_s:g} s") from error


def _future(reference: Any) -> Awaitable[Any]:
    return asyncio.wrap_future(reference.future())


def _ours(error: RayError, what: str) -> RmrlError:
    if isinstance(error, RayActorError):
        return EngineLostError(f"the process of {what} died: {_last_line(error)}")
    if isinstance(error, RayTaskError):
        cause = error.cause
        if isinstance(cause, RmrlError):
            return cause
        return InfrastructureError(f"{what} failed: {_last_line(cause or error)}\n{error}")
    return InfrastructureError(f"{what} failed: {_last_line(error)}")


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"

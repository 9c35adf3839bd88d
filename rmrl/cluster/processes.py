"""Processes made by Ray: spawn, call with a deadline, stream, kill. Ray's errors become ours here and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from rmrl.cluster.actors import AsyncProcess, SyncProcess
from rmrl.errors import EngineLostError, InfrastructureError, RmrlError, StallError

SPAWN_TIMEOUT_S = 300.0
_KILL_TIMEOUT_S = 10.0
_POLL_S = 0.01
Placement = PlacementGroupSchedulingStrategy | NodeAffinitySchedulingStrategy | None


@dataclass(frozen=True, slots=True)
class RayProcess:
    """A living process. Implements rmrl.types.ProcessHandle."""

    actor: Any
    name: str
    local: psutil.Process | None = None
    """The process itself where it runs on this machine."""

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
        """End the process and its children now; their memory returns to the machine. Waits until they are gone."""
        family = _family(self.local)
        pid_gone = self.actor.pid.remote()
        with contextlib.suppress(RayError):
            ray.kill(self.actor)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILL_TIMEOUT_S):
                with contextlib.suppress(RayError):
                    await _future(pid_gone)  # usually the error of its death, but it may still answer
                await _gone(family)


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
            pid = await finish(process.actor.make.remote(factory, dict(settings)), what=f"starting {name}", timeout_s=SPAWN_TIMEOUT_S)
        except BaseException:
            await process.kill()
            raise
        return RayProcess(process.actor, name, _local_process(pid))


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


def _local_process(pid: int) -> psutil.Process | None:
    """None where the worker runs on another machine (or, by that machine's numbering, as some other program here)."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return process if "".join(process.cmdline()[:1]).startswith("ray::") else None
    return None


def _family(process: psutil.Process | None) -> list[psutil.Process]:
    """The process and its children, such as the workers of a tensor-parallel engine."""
    with contextlib.suppress(psutil.Error):
        return [] if process is None else [process, *process.children(recursive=True)]
    return []


async def _gone(family: Sequence[psutil.Process]) -> None:
    """Wait for the first one's end, end the others, and wait for them."""
    for member in family:
        if member is not family[0]:
            with contextlib.suppress(psutil.Error):
                member.kill()
        while _lives(member):
            await asyncio.sleep(_POLL_S)


def _lives(process: psutil.Process) -> bool:
    """A zombie holds no memory any more."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


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

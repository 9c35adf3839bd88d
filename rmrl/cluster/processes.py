"""Processes made by Ray: spawn, call with a deadline, stream, kill. Ray's errors become ours here
and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from rmrl.cluster.actors import CONTROL, AsyncProcess, Birth, SyncProcess
from rmrl.cluster.stacks import ProcessStacks, write_stacks
from rmrl.cluster.watch import loss, unless_lost
from rmrl.errors import EngineLostError, InfrastructureError, RmrlError, StallError

SPAWN_TIMEOUT_S = 300.0
_KILL_TIMEOUT_S = 10.0
_STACKS_TIMEOUT_S = 5.0
_CHILDREN_TIMEOUT_S = 2.0
_RAY_ENDS_IT_S = 3.0
_POLL_S = 0.01
Placement = PlacementGroupSchedulingStrategy | NodeAffinitySchedulingStrategy | None


@dataclass(frozen=True, slots=True)
class RayProcess:
    """A living process. Implements rmrl.types.ProcessHandle."""

    actor: Any
    name: str
    local: psutil.Process | None = None
    """The process itself where it runs on this machine."""
    node_id: str = ""
    address: str = ""
    """Of its node."""
    stack_folder: Path | None = None
    """Where the whole stacks of a stalled process are written; None: nowhere."""

    async def call(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        """Result of the method. EngineLostError: the process died; StallError: past the deadline;
        our own errors come through."""
        try:
            return await self.result(method, *args, timeout_s=timeout_s, **kwargs)
        except TimeoutError as error:
            raise await stalled(
                [self], call_name(self.name, method, args), f"did not finish within {timeout_s:g} s"
            ) from error

    async def result(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        """As `call`, but TimeoutError past the deadline: for callers that say more about it."""
        return await _result(
            self.actor.call.remote(method, *args, **kwargs),
            call_name(self.name, method, args),
            timeout_s,
        )

    async def stream(self, method: str, *args: Any, timeout_s: float) -> AsyncIterator[Any]:
        """Parts of an async generator as they come; the deadline holds for each part."""
        parts = self.actor.stream.options(num_returns="streaming").remote(method, *args)
        what = call_name(self.name, method, args)
        iterator = parts.__aiter__()
        while True:
            try:
                reference = await asyncio.wait_for(iterator.__anext__(), timeout_s)
            except StopAsyncIteration:
                return
            except RayError as error:
                raise our_error(error, what) from error
            except TimeoutError as error:
                raise await stalled([self], what, f"gave nothing for {timeout_s:g} s") from error
            for part in await finish(reference, what=what, timeout_s=timeout_s):
                yield part

    async def stacks(self) -> ProcessStacks | None:
        """Where the process stands; None when it does not say so within some seconds."""
        with contextlib.suppress(RayError, TimeoutError):
            return await asyncio.wait_for(_future(self.actor.stacks.remote()), _STACKS_TIMEOUT_S)
        return None

    async def kill(self) -> None:
        """End the process and its children now; their memory returns to the machine. Waits until
        they are gone."""
        family = _family(self.local)
        if loss() is not None:  # Ray can end nothing any more
            await _gone(family, ray_ends_it_s=0.0)
            return
        if self.local is None:  # its children are out of our sight; it may have some
            with contextlib.suppress(RayError, TimeoutError):
                await asyncio.wait_for(
                    _future(self.actor.end_children.remote()), _CHILDREN_TIMEOUT_S
                )
        pid_gone = self.actor.pid.remote()
        with contextlib.suppress(RayError):
            ray.kill(self.actor)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILL_TIMEOUT_S):
                with contextlib.suppress(RayError):
                    await _future(
                        pid_gone
                    )  # usually the error of its death, but it may still answer
                await _gone(family)


@dataclass(frozen=True, slots=True)
class RayHost:
    """Makes processes with the same environment on the same node. Implements
    rmrl.types.ProcessHost."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables set before the process imports anything."""
    placement: Placement = None
    num_cpus: float = 0.0
    num_gpus: float = 0.0
    asynchronous: bool = False
    stack_folder: Path | None = None
    """See RayProcess."""

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
        remote: Any = ray.remote
        actor = remote(concurrency_groups={CONTROL: 1})(
            AsyncProcess if self.asynchronous else SyncProcess
        )
        process = RayProcess(actor.options(**options).remote(), name)
        try:
            made = process.actor.make.remote(factory, dict(settings))
            birth: Birth = await unless_lost(
                finish(made, what=f"starting {name}", timeout_s=SPAWN_TIMEOUT_S)
            )
        except BaseException:
            await process.kill()
            raise
        return RayProcess(
            process.actor,
            name,
            _local_process(birth),
            birth.node_id,
            birth.address,
            self.stack_folder,
        )


async def finish(reference: Any, *, what: str, timeout_s: float) -> Any:
    """Await an object reference with a deadline and with our errors."""
    try:
        return await _result(reference, what, timeout_s)
    except TimeoutError as error:
        raise StallError(f"{what} did not finish within {timeout_s:g} s") from error


async def _result(reference: Any, what: str, timeout_s: float) -> Any:
    """TimeoutError past the deadline, and then only."""
    try:
        return await asyncio.wait_for(_future(reference), timeout_s)
    except (
        RayError
    ) as error:  # before TimeoutError: one raised by the method itself arrives as both
        raise our_error(error, what) from error


async def stalled(processes: Sequence[RayProcess], what: str, how: str) -> StallError:
    """The error of a call past its deadline: where each of the processes stands, and the file with
    all stacks."""
    found = list(
        zip(
            (p.name for p in processes),
            await asyncio.gather(*(p.stacks() for p in processes)),
            strict=True,
        )
    )
    lines = [
        (
            f"  {name} (pid {s.pid}): {s.short()}"
            if s
            else f"  {name} says nothing: dead, or held by a call into C"
        )
        for name, s in found
    ]
    folder = processes[0].stack_folder
    with contextlib.suppress(OSError):  # the stall is the news, not that the disk is full
        lines += [f"all stacks: {write_stacks(folder, what, found)}"] if folder else []
    return StallError("\n".join([f"{what} {how}; it stands in (innermost first):", *lines]))


def call_name(process: str, method: str, args: Sequence[Any] = ()) -> str:
    """For messages. `on` hands a call on to one of several objects: its own arguments name both."""
    return ".".join((process, *map(str, args[:2]))) if method == "on" else f"{process}.{method}"


def node_lines(processes: Sequence[RayProcess]) -> list[str]:
    """Which process runs where, one line a node; nothing where all run on one."""
    nodes: dict[str, list[RayProcess]] = {}
    for process in processes:
        nodes.setdefault(process.node_id, []).append(process)
    lines = [
        f"node {of[0].address} ({node_id[:8]}): {', '.join(process.name for process in of)}"
        for node_id, of in nodes.items()
    ]
    return lines if len(lines) > 1 else []


def _future(reference: Any) -> Awaitable[Any]:
    return asyncio.wrap_future(reference.future())


def _local_process(birth: Birth) -> psutil.Process | None:
    """None where the worker runs on another node: its number means nothing here."""
    if birth.node_id != ray.get_runtime_context().get_node_id():
        return None
    with contextlib.suppress(psutil.Error):
        return psutil.Process(birth.pid)
    return None


def _family(process: psutil.Process | None) -> list[psutil.Process]:
    """The process and its children, such as the workers of a tensor-parallel engine."""
    with contextlib.suppress(psutil.Error):
        return [] if process is None else [process, *process.children(recursive=True)]
    return []


async def _gone(family: Sequence[psutil.Process], *, ray_ends_it_s: float = _RAY_ENDS_IT_S) -> None:
    """Wait for the first one's end (Ray was told, and is not waited for long), end the others, and
    wait for them."""
    patience = time.monotonic() + ray_ends_it_s
    for member in family:
        told = member is family[0]
        while _lives(member):
            if not told or time.monotonic() > patience:
                told = True
                with contextlib.suppress(psutil.Error):
                    member.kill()
            await asyncio.sleep(_POLL_S)


def _lives(process: psutil.Process) -> bool:
    """A zombie holds no memory any more."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def our_error(error: RayError, what: str) -> RmrlError:
    """Ray's error of the call `what` as one of ours; those that the called object raised are ours
    already."""
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

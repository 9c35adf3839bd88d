"""Processes started by Ray: spawn, call with a deadline, stream, kill. Ray's errors become ours
here and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
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

from rmrl.cluster.actors import CONTROL, AsyncProcess, ProcessIdentity, SyncProcess
from rmrl.cluster.process_tree import Family, end_family
from rmrl.cluster.progress_deadline import with_progress
from rmrl.cluster.stacks import ProcessStacks, write_stacks
from rmrl.cluster.watch import loss, unless_lost
from rmrl.errors import EngineLostError, InfrastructureError, RmrlError, StallError

SPAWN_TIMEOUT_S = 300.0
_KILL_TIMEOUT_S = 10.0
_STACKS_TIMEOUT_S = 5.0
_CHILDREN_TIMEOUT_S = 2.0
_RAY_ENDS_IT_S = 3.0
_CLOSE_TIMEOUT_S = 30.0
Placement = PlacementGroupSchedulingStrategy | NodeAffinitySchedulingStrategy | None


@dataclass(frozen=True, slots=True)
class RayProcess:
    """A living process. Implements rmrl.interfaces.ProcessHandle."""

    actor: Any
    name: str
    family: Family | None = None
    """The process and its children where it runs on this machine."""
    node_id: str = ""
    address: str = ""
    """Network address of its node."""
    stack_folder: Path | None = None
    """Folder for the stacks of a stalled process. None: they are not written."""

    def remember_family(self) -> None:
        """Note the present children, so that `kill` ends them also where the process itself has
        died before: its children are not known any more then. Another node's are not visible
        here."""
        if self.family is not None:
            self.family.remember()

    async def alive(self, *, timeout_s: float) -> None:
        """Return at once from a living process. Raises EngineLostError where it died, StallError
        where it does not answer."""
        await finish(self.actor.pid.remote(), what=f"{self.name}.alive", timeout_s=timeout_s)

    async def call(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        """Return the method's result.

        The deadline counts from the call's last progress, where the object counts it (method
        `progress`), see `with_progress`. Raises EngineLostError when the process dies, StallError
        past the deadline, and the method's RmrlErrors unchanged.
        """
        try:
            return await self.result(method, *args, timeout_s=timeout_s, **kwargs)
        except TimeoutError as error:
            raise await stalled(
                [self], call_name(self.name, method, args), f"did not finish within {timeout_s:g} s"
            ) from error

    async def result(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        """Like `call`, but raises TimeoutError past the deadline, for callers with their own
        error."""
        return await _result(
            self.actor.call.remote(method, *args, **kwargs),
            call_name(self.name, method, args),
            timeout_s,
            progress=self._progress,
        )

    def stored(self, value: Any) -> Any:
        """Put a value into Ray's object store and return a reference to it: an argument of calls
        to several processes is then written and sent to their node once."""
        return ray.put(value)

    async def _progress(self) -> int:
        with contextlib.suppress(RayError, TimeoutError):
            return await asyncio.wait_for(_future(self.actor.progress.remote()), _STACKS_TIMEOUT_S)
        return 0

    async def stream(self, method: str, *args: Any, timeout_s: float) -> AsyncIterator[Any]:
        """Yield an async generator's parts as they come. The deadline holds for each part. Where
        the caller stops early, the generator is closed in its process first."""
        parts = self.actor.stream.options(num_returns="streaming").remote(method, *args)
        what = call_name(self.name, method, args)
        iterator = parts.__aiter__()
        try:
            while True:
                try:
                    reference = await asyncio.wait_for(iterator.__anext__(), timeout_s)
                except StopAsyncIteration:
                    return
                except RayError as error:
                    raise our_error(error, what) from error
                except TimeoutError as error:
                    said = f"gave nothing for {timeout_s:g} s"
                    raise await stalled([self], what, said) from error
                for part in await finish(reference, what=what, timeout_s=timeout_s):
                    yield part
        except (asyncio.CancelledError, GeneratorExit):
            with contextlib.suppress(RayError, TimeoutError):
                ray.cancel(parts)
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    async for reference in parts:
                        await reference
            raise

    async def stacks(self) -> ProcessStacks | None:
        """Return the process's stacks, None when it does not answer within some seconds."""
        with contextlib.suppress(RayError, TimeoutError):
            return await asyncio.wait_for(_future(self.actor.stacks.remote()), _STACKS_TIMEOUT_S)
        return None

    async def kill(self) -> None:
        """End the process and its children now. Their memory returns to the machine. Waits until
        they are gone."""
        # Its children are, for example, the workers of a tensor-parallel engine.
        members = [] if self.family is None else self.family.members()
        if loss() is not None:
            # Without its cluster Ray cannot end a process.
            await end_family(members)
            return
        if self.family is None:
            # A process on another node may have children that are not visible here.
            with contextlib.suppress(RayError, TimeoutError):
                end = _future(self.actor.end_children.remote())
                await asyncio.wait_for(end, _CHILDREN_TIMEOUT_S)
        pid_gone = self.actor.pid.remote()
        with contextlib.suppress(RayError):
            ray.kill(self.actor)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILL_TIMEOUT_S):
                with contextlib.suppress(RayError):
                    # Usually raises the error of its death, but the process may still answer.
                    await _future(pid_gone)
                await end_family(members, ends_by_itself_s=_RAY_ENDS_IT_S)


@dataclass(frozen=True, slots=True)
class RayHost:
    """Starts processes with the same environment on the same node. Implements
    rmrl.interfaces.ProcessHost."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables set before the process imports anything."""
    placement: Placement = None
    num_cpus: float = 0.0
    num_gpus: float = 0.0
    asynchronous: bool = False
    stack_folder: Path | None = None
    """See RayProcess."""

    async def spawn(self, factory: str, settings: Mapping[str, Any], *, name: str) -> RayProcess:
        """Start a process and build `factory(**settings)` in it."""
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
        kind = AsyncProcess if self.asynchronous else SyncProcess
        actor = remote(concurrency_groups={CONTROL: 1})(kind)
        process = RayProcess(actor.options(**options).remote(), name)
        try:
            creation = process.actor.make.remote(factory, dict(settings))
            identity: ProcessIdentity = await unless_lost(
                finish(creation, what=f"starting {name}", timeout_s=SPAWN_TIMEOUT_S)
            )
        except BaseException:
            await process.kill()
            raise
        family = None
        # On another node the process id means nothing here.
        if identity.node_id == ray.get_runtime_context().get_node_id():
            with contextlib.suppress(psutil.Error):
                family = Family(psutil.Process(identity.pid))
        return RayProcess(
            process.actor, name, family, identity.node_id, identity.address, self.stack_folder
        )


async def finish(reference: Any, *, what: str, timeout_s: float) -> Any:
    """Await an object reference with a deadline and with our errors."""
    try:
        return await _result(reference, what, timeout_s)
    except TimeoutError as error:
        raise StallError(f"{what} did not finish within {timeout_s:g} s") from error


async def _no_progress() -> int:
    return 0


async def _result(
    reference: Any,
    what: str,
    timeout_s: float,
    *,
    progress: Callable[[], Awaitable[int]] = _no_progress,
) -> Any:
    """Return what an object reference refers to. Raises TimeoutError past the deadline and in no
    other case."""
    try:
        return await with_progress(_future(reference), timeout_s=timeout_s, progress=progress)
    # Before TimeoutError: one raised by the method itself arrives as both.
    except RayError as error:
        raise our_error(error, what) from error


async def stalled(processes: Sequence[RayProcess], what: str, how: str) -> StallError:
    """Return the error for a call past its deadline: each process's innermost frames, and the file
    with all stacks."""
    stacks = await asyncio.gather(*(process.stacks() for process in processes))
    names = [process.name for process in processes]
    stacks_by_name = list(zip(names, stacks, strict=True))
    lines = [f"{what} {how}; it stands in (innermost first):"]
    for name, stack in stacks_by_name:
        if stack is None:
            lines.append(f"  {name} does not answer: dead, or blocked in a call into C")
        else:
            lines.append(f"  {name} (pid {stack.pid}): {stack.short()}")
    folder = processes[0].stack_folder
    if folder is not None:
        # A full disk must not replace the error of the stall.
        with contextlib.suppress(OSError):
            lines.append(f"all stacks: {write_stacks(folder, what, stacks_by_name)}")
    return StallError("\n".join(lines))


def call_name(process: str, method: str, args: Sequence[Any] = ()) -> str:
    """Return a call's name for messages. `on` forwards a call to one of several objects: its own
    arguments name both."""
    if method == "on":
        return ".".join((process, *map(str, args[:2])))
    return f"{process}.{method}"


def node_lines(processes: Sequence[RayProcess]) -> list[str]:
    """Return each node's processes, one line a node. Nothing where all run on one."""
    nodes: dict[str, list[RayProcess]] = {}
    for process in processes:
        nodes.setdefault(process.node_id, []).append(process)
    if len(nodes) <= 1:
        return []
    lines: list[str] = []
    for node_id, members in nodes.items():
        names = ", ".join(process.name for process in members)
        lines.append(f"node {members[0].address} ({node_id[:8]}): {names}")
    return lines


def _future(reference: Any) -> Awaitable[Any]:
    return asyncio.wrap_future(reference.future())


def our_error(error: RayError, what: str) -> RmrlError:
    """Translate Ray's error from the call `what` into rmrl's; errors that the called object raised
    stay what they are."""
    if isinstance(error, RayActorError):
        return EngineLostError(f"the process of {what} died: {_last_line(error)}")
    if isinstance(error, RayTaskError):
        cause = error.cause
        if isinstance(cause, RmrlError):
            return cause
        return InfrastructureError(f"{what} failed: {_last_line(cause or error)}\n{error}")
    return InfrastructureError(f"{what} failed: {_last_line(error)}")


def _last_line(error: BaseException) -> str:
    text = str(error).strip()
    last = text.splitlines()[-1].strip() if text else ""
    return f"{type(error).__name__}: {last}"

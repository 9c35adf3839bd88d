"""Requests of rewards to the policy itself (`path: policy`) reach the rollout engines.

The processes are those of the rollout: nothing is started or ended here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmrl.trainer.rollouts import RolloutPool


class PolicyHost:
    """Implements rmrl.interfaces.ProcessHost around the rollout engines of a run."""

    def __init__(self, rollouts: RolloutPool) -> None:
        self._rollouts = rollouts

    async def spawn(self, factory: str, settings: Mapping[str, Any], *, name: str) -> PolicyHandle:  # noqa: ARG002
        """Return a handle on the engines that run already."""
        return PolicyHandle(self._rollouts)


class PolicyHandle:
    """Implements rmrl.interfaces.ProcessHandle: the calls of a generating reward engine, made to
    the rollout engines."""

    def __init__(self, rollouts: RolloutPool) -> None:
        self._rollouts = rollouts

    async def call(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any:  # noqa: ARG002
        """Answer, wake or sleep. Raises EngineLostError where a rollout engine is lost and may not
        be started again."""
        match method:
            case "generate":
                return await self._rollouts.answer(*args, timeout_s=timeout_s)
            case "start" | "wake":
                await self._rollouts.wake()
            case "sleep":
                # A copy of the weights stays: they may be asked again before new ones come.
                await self._rollouts.sleep(level=1)
            case _:
                assert method == "resident_bytes", method
                return 0.0
        return None

    def remember_family(self) -> None:
        """Do nothing: the run ends its rollout engines."""

    async def alive(self, *, timeout_s: float) -> None:
        """Do nothing: the next call notices a lost engine."""

    async def kill(self) -> None:
        """Do nothing, see `remember_family`."""

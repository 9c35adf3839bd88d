"""How a training process reaches the rollout engines: vLLM's weight transfer drives both ends from
rank 0."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from rmrl.cluster.processes import RayProcess, our_error
from rmrl.errors import StallError


class EngineClient:
    """Calls every engine at once and waits for all. Implements vLLM's VLLMWeightSyncClient; travels
    to the process that uses it."""

    def __init__(
        self,
        engines: Sequence[RayProcess],
        *,
        devices_per_engine: int,
        timeout_s: float,
        outlives_engines: bool,
        numbers_engines: bool = False,
    ) -> None:
        """`numbers_engines`: their ranks follow from a number, not from `rank_offset`.
        `outlives_engines`: where an engine dies during an update, the update goes on with the
        others, so that every training process comes to its end. Else EngineLostError."""
        self.version = 0
        self._actors = [engine.actor for engine in engines]
        self._devices = devices_per_engine
        self._timeout_s = timeout_s
        self._outlives_engines = outlives_engines
        self._numbers_engines = numbers_engines
        self._dead: set[int] = set()

    @property
    def complete(self) -> bool:
        """Whether no engine has died in an update."""
        return not self._dead

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Give each engine its own ranks in the process group, where there is one."""
        infos = [(self.init_info_of(init_info, i),) for i in range(len(self._actors))]
        self._all("init_weight_transfer_engine", infos)

    def init_info_of(self, init_info: Mapping[str, Any], engine: int) -> dict[str, Any]:
        """`init_info` for one engine: vLLM counts the engine's ranks from `rank_offset` on, and
        the engines' ranks follow one another."""
        if self._numbers_engines:
            return {**init_info, "engine_number": engine}
        if "rank_offset" not in init_info:
            return dict(init_info)
        return {**init_info, "rank_offset": init_info["rank_offset"] + engine * self._devices}

    def start_weight_update(self) -> None:
        self._all("start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        self._all("update_weights", [(update_info,)] * len(self._actors))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """`weight_version` is vLLM's own label. The engines count by `version`."""
        del weight_version
        self._all("finish_weight_update", [(self.version,)] * len(self._actors))

    def _all(self, method: str, per_engine: Sequence[tuple[Any, ...]] | None = None) -> None:
        arguments = per_engine or [()] * len(self._actors)
        calls = {
            actor.call.remote(method, *args): number
            for number, (actor, args) in enumerate(zip(self._actors, arguments, strict=True))
            if number not in self._dead
        }
        waiting = list(calls)
        deadline = time.monotonic() + self._timeout_s
        while waiting:
            left = max(0.0, deadline - time.monotonic())
            ended, waiting = ray.wait(waiting, num_returns=1, timeout=left)
            if not ended:
                raise StallError(
                    f"{method} of the rollout engines did not finish within {self._timeout_s:g} s"
                )
            for call in ended:
                try:
                    ray.get(call)
                except RayActorError as error:
                    if not self._outlives_engines:
                        raise our_error(error, f"rollout.{method}") from error
                    self._dead.add(calls[call])
                except RayError as error:
                    raise our_error(error, f"rollout.{method}") from error

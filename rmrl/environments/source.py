"""Rollouts that a verifiers environment plays: one episode per sample, whose turns the rollout
engines draw."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmrl.config.schema.rollout import VerifiersConfig
from rmrl.environments.endpoint import Conversing, Draw, Endpoint
from rmrl.environments.host import PROGRAM, Host, PlayError
from rmrl.environments.hosts import Hosts, default_count
from rmrl.environments.traces import failed, response_of
from rmrl.errors import EngineLostError, InfrastructureError
from rmrl.telemetry.turn_metrics import ABANDONED
from rmrl.types import Prompt, Response, Rollouts, Sampling

_log = logging.getLogger(__name__)

TASK = "task"
"""Field of `extra_info` with the task's data, as JSON."""
TOKEN_VARIABLE = "RMRL_ENDPOINT_API_KEY"
"""Verifiers keeps variables with API_KEY in their name from the programs that it starts."""
TRIED = "0.4."
"""Releases of verifiers that were tried."""
_STARTS_S = 300.0
_GRACE_S = 30.0
"""Seconds beyond its own deadline in which an environment has to give its trace back."""


class VerifiersSource:
    """Plays samples. In each call to `generate` a host process may be started again once."""

    def __init__(
        self,
        settings: VerifiersConfig,
        *,
        model: str,
        max_model_len: int,
        max_response_length: int,
        log: Path,
    ) -> None:
        """`model`: the tokenizer with which the environment writes prompts, a folder or hub id.
        `max_response_length`: most tokens that the policy samples in a response."""
        self._limits = {"max_turns": settings.turns, "max_output_tokens": max_response_length}
        self._settings = settings
        self._model = model
        self._log = log
        self._endpoint = Endpoint(model=model, max_model_len=max_model_len)
        self._client: dict[str, Any] = {
            "type": "train",
            "api_key_var": TOKEN_VARIABLE,
            "renderer_model_name": model,
            "renderer": dict(settings.renderer) or None,
        }
        self._stack = AsyncExitStack()
        count = settings.processes or default_count()
        self._hosts = Hosts(self._host, count, timeout_s=_STARTS_S)

    async def start(self) -> None:
        """Open the environment, and the endpoint for its turns. Raises ConfigError where the
        environment cannot be opened."""
        await self._stack.enter_async_context(self._endpoint.listening())
        await self._hosts.start()
        version = self._hosts.version
        if not version.startswith(TRIED):
            _log.warning(f"verifiers {version} plays the environment; rmrl was tried with {TRIED}")
        _log.info(
            f"environment {self._settings.env}, played by verifiers {version} in"
            f" {self._hosts.count} process(es); its output goes to {self._log}"
        )

    async def close(self) -> None:
        """End the environment's processes and the endpoint."""
        await self._hosts.close()
        await self._stack.aclose()

    async def generate(
        self,
        draw: Draw,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        on_finished: Callable[[int], None],
        on_response: Callable[[int, Response], None],
    ) -> Rollouts:
        """Play `sampling.n` samples for each prompt. See RolloutPool.generate.

        A sample that fails, or that is over its deadline, is a response without tokens and with a
        status. Raises what an engine raises, and EngineLostError where hosts end too often.
        """
        self._hosts.begin_step()
        self._endpoint.forget()
        total = len(prompts) * sampling.n
        responses: dict[int, Response] = {}
        slots = asyncio.Semaphore(self._settings.at_once)

        async def one(position: int) -> None:
            async with slots:
                prompt = prompts[position // sampling.n]
                seed = None if sampling.seed is None else sampling.seed + position
                own = replace(sampling, seed=seed)
                responses[position] = await self._play(prompt, draw, own)
            on_finished(len(responses))
            on_response(position, responses[position])

        tasks = {asyncio.create_task(one(position)): position for position in range(total)}
        try:
            for position in await self._all_but_stragglers(tasks):
                prompt = prompts[position // sampling.n]
                detail = "the other samples had ended, and the run went on without this one"
                responses[position] = failed(prompt, "timeout", detail, stop=ABANDONED)
                on_finished(len(responses))
                on_response(position, responses[position])
            await self._endpoint.settled()
            if self._endpoint.failure is not None and self._endpoint.failure.done():
                raise self._endpoint.failure.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return Rollouts(
            responses=tuple(responses[position] for position in range(total)),
            group_size=sampling.n,
        )

    async def _all_but_stragglers(self, tasks: Mapping[asyncio.Task[None], int]) -> list[int]:
        """Wait until `wait_share` have ended and the others had `straggler_s` more seconds. Cancel
        those that are still under way, and return their positions."""
        wanted = math.ceil(self._settings.wait_share * len(tasks))
        pending: set[asyncio.Future[Any]] = set(tasks)
        assert self._endpoint.failure is not None
        pending.add(self._endpoint.failure)
        deadline: float | None = None
        loop = asyncio.get_running_loop()
        while len(pending) > 1:
            ended = len(tasks) - (len(pending) - 1)
            if deadline is None and ended >= wanted:
                deadline = loop.time() + self._settings.straggler_s
            timeout = None if deadline is None else max(0.0, deadline - loop.time())
            done, pending = await asyncio.wait(
                pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if self._endpoint.failure in done:
                raise self._endpoint.failure.result()
            for task in done:
                task.result()
            if not done:
                break
        late = [task for task in tasks if not task.done()]
        for task in late:
            task.cancel()
        return [tasks[task] for task in late]

    async def _play(self, prompt: Prompt, draw: Draw, sampling: Sampling) -> Response:
        """Play one sample. Where the host process has ended, play it again from the beginning."""
        while True:
            samples: dict[str, Conversing] = {}

            def begin(trace: str, samples: dict[str, Conversing] = samples) -> None:
                samples[trace] = Conversing(draw=draw, sampling=sampling)
                self._endpoint.open(trace, samples[trace])

            request = {
                "task": task_of(prompt),
                "client": {**self._client, "base_url": f"{self._endpoint.url}/v1"},
                "model": self._model,
                "sampling": {"temperature": sampling.temperature},
            }
            host = self._hosts.least_busy()
            try:
                async with asyncio.timeout(self._settings.seconds + _GRACE_S):
                    reply = await host.call("run", on_trace=begin, **request)
                on_limit = self._settings.on_limit
                return response_of(reply["episode"], prompt, samples, on_limit=on_limit)
            except TimeoutError:
                detail = f"the environment gave no trace in {self._settings.seconds:g} s"
                return failed(prompt, "timeout", detail)
            except PlayError as error:
                return failed(prompt, "provider_error", f"the environment failed: {error}")
            except EngineLostError as error:
                await self._hosts.replace(host, error)
            finally:
                for trace in samples:
                    self._endpoint.end(trace)

    def _host(self) -> Host:
        settings = self._settings
        return Host(
            host_command(settings),
            {"op": "open", "env": environment_settings(settings), "limits": self._limits},
            log=self._log,
            environment={TOKEN_VARIABLE: self._endpoint.token},
        )


def host_command(settings: VerifiersConfig) -> list[str]:
    """Return the command that starts the host program."""
    return [settings.python or sys.executable, str(PROGRAM), *settings.path]


def environment_settings(settings: VerifiersConfig) -> dict[str, Any]:
    """Return the environment's configuration as verifiers reads it."""
    arguments = dict(settings.args)
    taskset = {**(arguments.pop("taskset", None) or {}), "id": settings.env}
    timeout = {"episode": settings.seconds, **(arguments.pop("timeout", None) or {})}
    return {**arguments, "taskset": taskset, "timeout": timeout}


def task_of(prompt: Prompt) -> dict[str, Any]:
    """Return a row's task. Raises InfrastructureError for a row without one."""
    task = prompt.extra_info.get(TASK)
    if isinstance(task, str):
        return json.loads(task)
    if isinstance(task, Mapping):
        return dict(task)
    raise InfrastructureError(
        f"row {prompt.id} has no task in extra_info.{TASK}: make the rows with"
        " data_preprocess/verifiers_tasks.py"
    )


async def read_tasks(settings: VerifiersConfig, count: int | None, *, log: Path) -> list[Any]:
    """Return a taskset's first `count` tasks as data."""
    opening = {"op": "open", "env": environment_settings(settings), "limits": {}}
    host = Host(host_command(settings), opening, log=log, environment={})
    await host.start(timeout_s=_STARTS_S)
    try:
        reply = await host.call("tasks", count=count)
    except PlayError as error:
        raise InfrastructureError(f"the environment gave no tasks: {error}") from error
    finally:
        await host.close()
    return reply["tasks"]

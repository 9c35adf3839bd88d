"""Program that plays verifiers environments (0.4). It runs with its own packages: it does not
import rmrl, and nothing imports it.

It reads requests from stdin and writes replies to stdout, one JSON object per line. Prints go to
stderr. It ends with its stdin.

    {"op": "open", "env": {...}}           first; the reply is {"ready": "<version>"} or {"failed"}
    {"op": "tasks", "id": 0, "count": 10}  {"id": 0, "tasks": [{...}, ...]}
    {"op": "run", "id": 1, "task": {...}, "client": {...}, "model": "...", "sampling": {...}}
                                           {"id": 1, "trace": "<id>"} for each trace that begins,
                                           {"id": 1, "episode": {...}} or {"id": 1, "error": "..."}
    {"op": "cancel", "id": 1}              no reply
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from typing import Any, TextIO

LIMIT = 2**28
"""Most bytes in a line."""


class Host:
    """An open environment and its running episodes."""

    def __init__(self, replies: TextIO) -> None:
        self.replies = replies
        self.env: Any = None
        self.running: dict[int, asyncio.Task[None]] = {}

    def reply(self, **fields: Any) -> None:
        self.replies.write(json.dumps(fields) + "\n")
        self.replies.flush()

    def open(self, settings: Any, limits: dict[str, Any]) -> str:
        import verifiers
        from verifiers.v1.configs.agent import agent_config_fields
        from verifiers.v1.utils.loaders import load_environment, resolve_env_config

        config = resolve_env_config(settings)
        for role in agent_config_fields(config).values():
            for name, value in limits.items():
                if getattr(role, name) is None:
                    setattr(role, name, value)
        self.env = load_environment(config)
        return verifiers.__version__

    def tasks(self, count: int | None) -> list[Any]:
        taken = itertools.islice(self.env.taskset, count)
        return [task.data.model_dump(mode="json", exclude_none=True) for task in taken]

    async def run(self, number: int, request: Any) -> Any:
        from verifiers.v1.clients import ModelContext
        from verifiers.v1.configs.client import TrainClientConfig
        from verifiers.v1.types import SamplingConfig

        taskset = self.env.taskset
        task_type = type(taskset).task_type()
        data = task_type.data_type().model_validate(request["task"])
        context = ModelContext(
            client=TrainClientConfig.model_validate(request["client"]),
            model=request["model"],
            sampling=SamplingConfig.model_validate(request["sampling"]),
        )
        (slot,) = self.env.slots(task_type(data, self.env.config.taskset.task))
        announce = lambda trace: self.reply(id=number, trace=trace.id)  # noqa: E731
        episode = await self.env.run_slot(slot, context, on_trace=announce)
        return episode.to_record(float_decimals=None)

    async def answer(self, request: Any) -> None:
        number = request["id"]
        try:
            if request["op"] == "tasks":
                self.reply(id=number, tasks=self.tasks(request["count"]))
            else:
                self.reply(id=number, episode=await self.run(number, request))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.reply(id=number, error=f"{type(error).__name__}: {error}")
        finally:
            self.running.pop(number, None)

    async def serve(self, requests: asyncio.StreamReader, version: str) -> None:
        async with self.env.serving():
            # verifiers starts its server in a task, which ends the process where it may not.
            await asyncio.sleep(0.01)
            self.reply(ready=version)
            while line := await requests.readline():
                request = json.loads(line)
                number = request["id"]
                if request["op"] == "cancel":
                    if number in self.running:
                        self.running[number].cancel()
                else:
                    self.running[number] = asyncio.create_task(self.answer(request))
            for task in list(self.running.values()):
                task.cancel()


async def main() -> None:
    """Answer requests until stdin ends."""
    # The environment may print.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path[:0] = [folder for folder in sys.argv[1:] if folder not in sys.path]
    requests = asyncio.StreamReader(limit=LIMIT)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    host = Host(replies)
    first = json.loads(await requests.readline())
    try:
        version = host.open(first["env"], first["limits"])
    except Exception as error:
        host.reply(failed=f"{type(error).__name__}: {error}")
        raise
    await host.serve(requests, version)


if __name__ == "__main__":
    asyncio.run(main())

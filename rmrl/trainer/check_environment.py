"""Whether an environment can play the responses: compared before a process is started."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rmrl.config.schema import Config
from rmrl.environments.source import TASK, read_tasks
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.specs.spec import RewardSpec

_WHERE = "actor_rollout_ref.rollout"


def environment_problems(config: Config, specs: Sequence[RewardSpec]) -> Iterator[str]:
    """Yield what the settings and the rewards lack."""
    rollout = config.actor_rollout_ref.rollout
    settings = rollout.verifiers
    plays = rollout.source == "verifiers"
    for spec in specs:
        if spec.kind == "environment" and not plays:
            yield (
                f"reward '{spec.name}' is an environment's own, and none plays the responses: set"
                f" {_WHERE}.source=verifiers and {_WHERE}.verifiers.env=<taskset>"
            )
        if plays and REWARD_KINDS[spec.kind].rates_tokens:
            yield (
                f"reward '{spec.name}' is a teacher, which reads a response as one text behind its"
                " prompt; responses of an environment have turns of others: leave it out"
            )
    if not plays:
        if settings.env:
            yield (
                f"{_WHERE}.verifiers.env={settings.env} has no effect with {_WHERE}.source="
                f"{rollout.source}: set {_WHERE}.source=verifiers, or leave it out"
            )
        return
    if not settings.env:
        yield (
            f"{_WHERE}.source=verifiers needs an environment:"
            f" {_WHERE}.verifiers.env=<taskset package or module>"
        )
    if settings.python and shutil.which(settings.python) is None:
        yield (
            f"{_WHERE}.verifiers.python={settings.python}: there is no such program; give the"
            " python of the environment that has verifiers, e.g. agents/bin/python"
        )
    for folder in settings.path:
        if not Path(folder).is_dir():
            yield f"{_WHERE}.verifiers.path: there is no folder {folder}"


def check_opens(config: Config) -> None:
    """Open the environment in a process of its own and close it again: that takes seconds, and the
    policy's engines minutes. Raises ConfigError where it cannot be opened."""
    rollout = config.actor_rollout_ref.rollout
    if rollout.source != "verifiers":
        return
    # A name that nobody can know before: the folder may belong to everybody.
    handle, name = tempfile.mkstemp(prefix="rmrl-environment-", suffix=".log")
    os.close(handle)
    log = Path(name)
    # The caller may have an event loop.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(read_tasks(rollout.verifiers, 0, log=log))).result()
    log.unlink(missing_ok=True)


def task_problems(config: Config, rows: Sequence[ResponseRow]) -> Iterator[str]:
    """Yield the first row without a task."""
    if config.actor_rollout_ref.rollout.source != "verifiers":
        return
    for row in rows:
        if TASK not in row.prompt.extra_info:
            yield (
                f"row {row.prompt.id} has no extra_info.{TASK}, which the environment plays; make"
                " the rows with data_preprocess/verifiers_tasks.py"
            )
            return

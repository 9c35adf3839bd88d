"""The servers of a test session: each is started before the first program that may need it."""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from rmrl.inference.environment import engine_environment, thread_environment
from tests.forks.hook.rmrl_fork_client import FOLDER, SERVER, place_of_fork

REPOSITORY = Path(__file__).resolve().parent.parent.parent
HOOK = REPOSITORY / "tests" / "forks" / "hook"
FRESH = "RMRL_TESTS_FRESH"
"""Environment variable with which every program starts anew."""
OF_RAY = "RAY_AUTH_MODE"
"""Environment variable that Ray sets once in a process, and reads again with each cluster."""
Target = Callable[..., None]


@functools.cache
def folder() -> Path:
    """Where the sockets lie."""
    path = Path(tempfile.mkdtemp(prefix="rmrl-forks-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@dataclass(frozen=True, slots=True)
class ForkServer:
    """A process that imports `modules` once, under `environment` beside the session's own."""

    name: str
    modules: tuple[str, ...]
    environment: Callable[[], Mapping[str, str]] = dict

    def variables(self) -> dict[str, str]:
        """What a program needs to be one of its forks, whatever it runs."""
        return {SERVER: str(_start(self)), "PYTHONPATH": _hooked_path()}

    def start(self, target: Target, *arguments: Any) -> BaseProcess:
        """Start a daemon that calls `target(*arguments)` with the caller's environment."""
        return start_fresh(
            target, *arguments, environment={**self.environment(), **self.variables()}
        )


@functools.cache
def _start(server: ForkServer) -> Path:
    """Return its socket."""
    address = folder() / server.name
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    listener.listen(64)
    with address.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.forks.server"),
                *(str(listener.fileno()), *server.modules),
            ],
            cwd=REPOSITORY,
            env={**os.environ, **server.environment()},
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    listener.close()
    assert process.stdin is not None
    atexit.register(process.wait)
    atexit.register(process.stdin.close)
    return address


def start_fresh(
    target: Target, *arguments: Any, environment: Mapping[str, str] | None = None
) -> BaseProcess:
    """Start a daemon that calls `target(*arguments)`, in a process that has imported nothing."""
    process = multiprocessing.get_context("spawn").Process(
        target=target, args=arguments, daemon=True
    )
    resource_tracker.ensure_running()  # it would start under the environment too
    with environment_of(environment or {}):
        process.start()
    return process


@contextmanager
def environment_of(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables inside the block, and put all back behind it: libraries set some for which a
    fork is refused."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        if OF_RAY in os.environ:
            before[OF_RAY] = os.environ[OF_RAY]
        os.environ.clear()
        os.environ.update(before)


ENGINES = ForkServer(
    "engines",
    (
        "numpy",
        "torch",
        "transformers.models.auto.modeling_auto",
        "vllm",
        "vllm.v1.engine.llm_engine",
        "vllm.v1.worker.cpu_worker",
        "rmrl.inference.rollout",
        "rmrl.inference.reward_engines",
    ),
    functools.partial(engine_environment, device="cpu", threads=1),
)
"""For processes of vLLM."""
PROGRAMS = ForkServer(
    "programs",
    (
        "numpy",
        "torch",
        "torch.distributed.checkpoint",
        "torch.distributed.fsdp",
        "transformers",
        "transformers.models.auto.modeling_auto",
        "transformers.models.llama.modeling_llama",
        "transformers.models.qwen2.modeling_qwen2",
        "transformers.models.qwen3.modeling_qwen3",
        "transformers.models.qwen3_moe.modeling_qwen3_moe",
        "rmrl.backends",
        "rmrl.backends.fsdp.part",
        "rmrl.backends.megatron.core",
        "rmrl.config.schema",
    ),
    functools.partial(thread_environment, 1),
)
"""For commands and training processes."""


def forks_environment() -> dict[str, str]:
    """Variables with which rmrl's commands, Ray's workers and processes with an engine
    are forks of the two servers."""
    _start(ENGINES)
    _start(PROGRAMS)
    return {FOLDER: str(folder()), "PYTHONPATH": _hooked_path()}


def fork_of(process: psutil.Process) -> psutil.Process | None:
    """The fork for which a program that has started waits, if it is to be one."""
    file = Path(place_of_fork(str(folder()), process.pid))
    try:
        if file.stat().st_mtime < process.create_time() - 1:  # full seconds since the system began
            return None  # an earlier process with the same number has written it
        return psutil.Process(int(file.read_text()))
    except (OSError, ValueError, psutil.NoSuchProcess):
        return None


def _hooked_path() -> str:
    path = os.environ.get("PYTHONPATH", "")
    if str(HOOK) in path.split(os.pathsep):
        return path
    return os.pathsep.join([str(HOOK), path]) if path else str(HOOK)


def import_path(*folders: Path) -> str:
    """A PYTHONPATH with these folders, under which a program stays a fork if it was to be one."""
    hook = [HOOK] if FOLDER in os.environ else []
    return os.pathsep.join(map(str, [*hook, *folders]))

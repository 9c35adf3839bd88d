"""Processes forked from one that has imported what they need.

A fresh process imports torch, transformers and megatron-core or vLLM for 9 to 13 CPU seconds; a
fork of a process that has done so begins at once. A server is started at the first call and ends
with the tests.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest import mock

Target = Callable[..., None]
SAFE_THREADS = {"jemalloc_bg_thd"}
"""Arrow's allocator stops its thread before a fork and starts it again in the child when needed."""


class ForkServer:
    """Starts processes from one that has imported the module `preload` under `environment`; the
    module sets `STATE` by `preloaded`."""

    def __init__(
        self, preload: str, environment: Callable[[], Mapping[str, str]] | None = None
    ) -> None:
        self.preload = preload
        self.environment = environment or dict
        self.server = forkserver.ForkServer()
        self.server.set_forkserver_preload([preload])
        self.context = multiprocessing.get_context("forkserver")

    def start(self, target: Target, *arguments: Any) -> BaseProcess:
        """Start a daemon that calls `target(*arguments)` with the caller's environment."""
        with environment_of(self.environment()):
            self.server.ensure_running()
            ours = dict(os.environ)
        process = self.context.Process(
            target=_run, args=(self.preload, ours, target, arguments), daemon=True
        )
        # The standard library knows one server alone; this is the one call that goes to it.
        connect = self.server.connect_to_new_process
        with mock.patch.object(forkserver, "connect_to_new_process", connect):
            process.start()
        return process


def start_fresh(
    target: Target, *arguments: Any, environment: Mapping[str, str] | None = None
) -> BaseProcess:
    """Start a daemon as `ForkServer.start` does, in a process that has imported nothing."""
    process = multiprocessing.get_context("spawn").Process(
        target=target, args=arguments, daemon=True
    )
    with environment_of(environment or {}):
        process.start()
    return process


@contextmanager
def environment_of(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@dataclass(frozen=True, slots=True)
class Preloaded:
    error: str
    """Traceback of an import that failed: raised in the server it would end it without a word."""
    threads: list[str]
    """Names of the threads beside the main one that know nothing of forks."""


def preloaded(*modules: str) -> Preloaded:
    """Import modules in the server, before it forks."""
    error = ""
    try:
        for name in modules:
            importlib.import_module(name)
    except Exception:
        error = traceback.format_exc()
    gc.freeze()  # what is imported stays shared: a collection would write into every page
    main = str(os.getpid())
    threads = []
    for thread in Path("/proc/self/task").iterdir():
        name = (thread / "comm").read_text().strip()
        if thread.name != main and name not in SAFE_THREADS:
            threads.append(name)
    return Preloaded(error, threads)


def _run(
    preload: str, environment: dict[str, str], target: Target, arguments: tuple[Any, ...]
) -> None:
    state: Preloaded = importlib.import_module(preload).STATE
    assert not state.error, state.error
    # A thread does not live on in a fork, and what it held stays locked there.
    assert not state.threads, f"{preload} runs threads, so its forks may hang: {state.threads}"
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    sys.modules["numpy"].random.seed()
    target(*arguments)

"""Runs a function in a process of its own that has an engine's environment, and returns what it
returns."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tests.forks.servers import ENGINES, start_fresh


def run_in_engine_process(
    function: Callable[..., Any], *args: Any, timeout_s: float = 900.0, fresh: bool = False
) -> Any:
    """`function` must be at the top of its module; its result must pickle. Its error is raised here
    with its traceback as text. `fresh`: in a process that has imported nothing, as a user's."""
    receiver, sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
    if fresh:
        process = start_fresh(_answer, sender, function, args, environment=ENGINES.environment())
    else:
        process = ENGINES.start(_answer, sender, function, args)
    sender.close()
    try:
        if not receiver.poll(timeout_s):
            raise TimeoutError(f"{function.__name__} did not answer within {timeout_s:g} s")
        ok, result = receiver.recv()
    finally:
        process.join(30)
        if process.is_alive():
            process.kill()
            process.join(30)
    if not ok:
        raise AssertionError(result)
    return result


def _answer(pipe: Connection, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        pipe.send((True, function(*args)))
    except Exception:
        pipe.send((False, traceback.format_exc()))
    pipe.close()
    os._exit(0)  # the engine's own teardown takes seconds and prints

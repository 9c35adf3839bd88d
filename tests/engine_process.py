"""Runs a function in a fresh process that has an engine's environment, and returns what it
returns."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from rmrl.inference.environment import engine_environment


def run_in_engine_process(
    function: Callable[..., Any], *args: Any, timeout_s: float = 900.0
) -> Any:
    """`function` must be at the top of its module; its result must pickle. Its error is raised here
    with its traceback as text."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, function, args), daemon=True)
    before = dict(os.environ)
    os.environ.update(
        engine_environment(device="cpu", threads=1)
    )  # a spawned process imports torch before `function` begins
    try:
        process.start()
    finally:
        os.environ.clear()
        os.environ.update(before)
    theirs.close()
    try:
        if not ours.poll(timeout_s):
            raise TimeoutError(f"{function.__name__} did not answer within {timeout_s:g} s")
        ok, result = ours.recv()
    finally:
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join(5)
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

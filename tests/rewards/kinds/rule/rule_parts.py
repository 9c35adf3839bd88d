"""Rules that misbehave in every way, and what tests of their pool share."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from rmrl.rewards.dropins.dropin import FunctionSource
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.rule.reward import RuleReward
from rmrl.types import ScoreItem, ScoreResult
from tests.patience import PATIENCE_S

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


SHIPPED = Path(__file__).parents[4] / "reward_functions"
EVERY_WAY = """
import os, re, signal, socket, sys, time
import numpy as np

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return WAYS[solution_str](ground_truth)

def hang(_):
    while True: pass

def stop(gate):
    while not os.path.exists(gate): os.kill(os.getpid(), signal.SIGSTOP)
    return 1.0

def bomb(_):
    for _ in range(5): os.fork()
    while True: pass

def blocked(_):
    ends = socket.socketpair()
    return ends[0].recv(1)

def deep(_):
    raise KeyError("no such answer")

WAYS = {
    "length": lambda g: len(g), "bool": lambda g: True, "float32": lambda g: np.float32(0.5), "bool_": lambda g: np.bool_(True),
    "array0": lambda g: np.array(0.25), "none": lambda g: None, "nan": lambda g: float("nan"), "inf": lambda g: float("-inf"),
    "huge": lambda g: 10**400, "string": lambda g: "0.5", "array2": lambda g: np.ones(2), "list": lambda g: [1.0],
    "dict": lambda g: {"score": np.int64(2), "parsed": g, "a": np.arange(2), "n": np.float32(0.5), "o": {1: (None, True)}},
    "dict_none": lambda g: {"score": None, "why": "unsure"}, "no_score": lambda g: {"value": 1},
    "long_int": lambda g: {"score": 1, "x": 10**9999},
    "raise": deep, "exit": lambda g: sys.exit(1), "os_exit": lambda g: os._exit(3), "segv": lambda g: os.kill(os.getpid(), signal.SIGSEGV),
    "loop": hang, "sleep": lambda g: time.sleep(10**6), "regex": lambda g: re.match(r"(a+)+$", "a" * 40 + "b"),
    "stdout": lambda g: print("printed", flush=True) or os.write(1, b"written") and 1.0, "fork": lambda g: os.system("sleep 1000000"),
    "socket": blocked, "bomb": bomb, "stop": stop,
}
"""


WAITS_FOR = """
import os, time
def compute_score(solution_str, ground_truth):
    with open(ground_truth, "a") as log: log.write(os.path.basename(solution_str) + " ")
    while not os.path.exists(solution_str): time.sleep(0.01)
    return 1
"""
"""Waits for a file, whose name it adds to a list."""


def items(*responses: str, truth: str = "four") -> list[ScoreItem]:
    return [
        ScoreItem(prompt_id=str(i), messages=(), response=r, rm_prompt="", ground_truth=truth)
        for i, r in enumerate(responses)
    ]


def score(
    pool: RulePool, path: Path | str, responses: list[ScoreItem], *, timeout_s: float = PATIENCE_S
) -> list[ScoreResult]:
    return asyncio.run(
        RuleReward("mine", FunctionSource(str(path)), pool=pool, timeout_s=timeout_s).score(
            responses
        )
    )


def statuses(results: list[ScoreResult]) -> list[str]:
    return [result.status for result in results]


def state(pid: int) -> str:
    """The letter of a process's state; a process that has ended is a zombie, Z, or gone, ""."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    return state(pid) not in ("", "Z")


def wait_until(condition: Callable[[], bool]) -> bool:
    """Whether it came true. It is not asked again then: it may be true for a moment only."""
    end = time.monotonic() + PATIENCE_S
    while not (true := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return true


def one_call(
    pool: RulePool, path: Path, response: str, timeout_s: float, truth: str = ""
) -> Future[list[ScoreResult]]:
    """The results of one response, to come."""
    return pool.submit(
        FunctionSource(str(path)),
        [{"data_source": "", "solution_str": response, "ground_truth": truth}],
        timeout_s,
    )

"""One call to a worker holds calls of several small jobs of one rule, and each job keeps its own
answers and its own errors."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropins.dropin import FunctionSource
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.rule.worker_process import WorkerProcess
from rmrl.types import ScoreResult
from tests.patience import PATIENCE_S, expires

RULE = """
import os, signal, time
def compute_score(solution_str):
    if solution_str.startswith("gate "):
        while not os.path.exists(solution_str[5:]):
            time.sleep(0.01)
    if solution_str == "raise":
        raise KeyError("no such answer")
    if solution_str == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if solution_str == "hang":
        while True: pass
    return len(solution_str)
"""
JOBS = 40
ROWS = 4


@pytest.fixture
def pool() -> Iterator[RulePool]:
    with RulePool(1) as started:
        yield started


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The calls of each message to a worker."""
    sizes: list[int] = []
    send = WorkerProcess.send

    def counted(worker: Any, data: bytes) -> None:
        sizes.append(len(pickle.loads(data)[2]))
        send(worker, data)

    monkeypatch.setattr(WorkerProcess, "send", counted)
    return sizes


def score(
    pool: RulePool,
    folder: Path,
    jobs: Sequence[Sequence[str]],
    *,
    rule: str = RULE,
    timeout_s: float = PATIENCE_S,
) -> list[list[ScoreResult] | BaseException]:
    """The results of jobs that all wait while the worker is in a call of another one."""
    path = folder / "rule.py"
    path.write_text(rule, encoding="utf-8")
    source = FunctionSource(str(path)).frozen()

    async def answers() -> list[Any]:
        gate = folder / "gate"
        gate.unlink(missing_ok=True)
        futures = [pool.submit(source, [{"solution_str": f"gate {gate}"}], PATIENCE_S)]
        for texts in jobs:
            calls = [{"solution_str": text} for text in texts]
            futures.append(pool.submit(source, calls, timeout_s))
        gate.touch()
        waiting = [asyncio.wrap_future(each) for each in futures]
        return (await asyncio.gather(*waiting, return_exceptions=True))[1:]

    return asyncio.run(answers())


def values(results: list[ScoreResult] | BaseException) -> list[float | None]:
    assert not isinstance(results, BaseException)
    return [result.value for result in results]


def small_jobs() -> list[list[str]]:
    jobs: list[list[str]] = []
    for number in range(JOBS):
        jobs.append(["x" * (number + row) for row in range(ROWS)])
    return jobs


def test_many_small_jobs_take_few_calls_to_a_worker(
    pool: RulePool, tmp_path: Path, chunks: list[int]
) -> None:
    score(pool, tmp_path, [["warm"]] * 8)  # the rule's cost is known now
    chunks.clear()
    answers = score(pool, tmp_path, small_jobs())
    for number, results in enumerate(answers):
        assert values(results) == [number, number + 1, number + 2, number + 3]
    assert sum(chunks) == JOBS * ROWS + 1
    assert max(chunks) > ROWS  # calls of several jobs


def test_a_call_that_raises_or_crashes_costs_its_own_job_alone(
    pool: RulePool, tmp_path: Path
) -> None:
    jobs = small_jobs()
    jobs[7] = ["ok", "raise"]
    jobs[20] = ["crash", "four"]
    score(pool, tmp_path, [["warm"]] * 8)
    answers = score(pool, tmp_path, jobs)
    for number, results in enumerate(answers):
        if number not in (7, 20):
            assert values(results) == [number, number + 1, number + 2, number + 3]
    assert values(answers[7]) == [2, None]
    assert values(answers[20]) == [None, 4]


def test_after_a_hang_the_jobs_of_a_rule_go_apart(
    pool: RulePool, tmp_path: Path, chunks: list[int]
) -> None:
    jobs = small_jobs()
    jobs[3] = ["hang"]
    answers = score(pool, tmp_path, jobs, timeout_s=expires(0.3))
    assert values(answers[3]) == [None]
    assert values(answers[4]) == [4, 5, 6, 7]
    chunks.clear()
    answers = score(pool, tmp_path, small_jobs())
    assert values(answers[39]) == [39, 40, 41, 42]
    assert max(chunks) <= ROWS


def test_a_rule_that_cannot_be_imported_fails_every_job_that_waits(
    pool: RulePool, tmp_path: Path
) -> None:
    for results in score(pool, tmp_path, [["a"], ["b"]], rule=f"raise ValueError({os.getpid()})"):
        assert isinstance(results, RewardFunctionError)

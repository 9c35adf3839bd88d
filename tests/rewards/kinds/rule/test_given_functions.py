"""Functions that a program gives: their copies in the processes that run rules."""

from __future__ import annotations

import os

import pytest

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropins.given_function import source_of
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.rule.worker_process import WorkerProcess
from tests.patience import PATIENCE_S

LARGE = 1_000_000


def of_module(solution_str: str) -> float:
    return len(solution_str)


def test_a_copy_is_sent_once_and_again_behind_another_rule_or_to_another_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    send = WorkerProcess.send

    def watched(worker: WorkerProcess, data: bytes) -> None:
        sizes.append(len(data))
        send(worker, data)

    monkeypatch.setattr(WorkerProcess, "send", watched)
    letters = "x" * LARGE

    def rule(solution_str: str) -> float:
        if solution_str == "end":
            os._exit(1)
        return len(letters) + len(solution_str)

    def large() -> int:
        return sum(size > LARGE for size in sizes)

    source = source_of(rule)

    def value(pool: RulePool, response: str) -> float | None:
        (result,) = pool.submit(source, [{"solution_str": response}], PATIENCE_S).result(PATIENCE_S)
        return result.value

    with RulePool(1) as pool:
        assert [value(pool, "a"), value(pool, "bc")] == [LARGE + 1, LARGE + 2]
        assert large() == 1
        other = pool.submit(source_of(of_module), [{"solution_str": "abc"}], PATIENCE_S)
        assert [result.value for result in other.result(PATIENCE_S)] == [3.0]
        assert value(pool, "a") == LARGE + 1
        assert large() == 2
        assert value(pool, "end") is None
        assert value(pool, "a") == LARGE + 1


def test_a_module_s_function_is_imported_and_others_are_copied() -> None:
    assert source_of(of_module).copy == b""
    assert str(source_of(of_module)) == f"{__name__}:of_module"

    def inner(solution_str: str) -> float:
        return 1.0

    assert source_of(inner).load()("any") == 1.0
    inner.__module__ = "a module that no worker has"
    assert source_of(inner).load()("any") == 1.0


def test_a_copy_that_another_process_cannot_read_is_a_sentence() -> None:
    class Torn:
        def __reduce__(self) -> tuple[object, ...]:
            return (int, ("no number",))

    torn = Torn()

    def rule(solution_str: str) -> float:
        return float(bool(torn))

    with pytest.raises(RewardFunctionError, match=r"Copying .*rule.* raised ValueError"):
        source_of(rule).load()

"""Rules that cost worker after worker: the next workers are forked, not started afresh, and keep
every promise of the others."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rmrl.rewards.dropins.dropin import FunctionSource
from rmrl.rewards.kinds.rule import worker_process
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.rule.reward import RuleReward
from rmrl.rewards.kinds.rule.worker_process import Nursery
from rmrl.types import ScoreItem, ScoreResult
from tests.patience import PATIENCE_S, expires
from tests.rewards.kinds.rule.rule_parts import wait_until

RULE = """
import os, random, signal, subprocess, time
import numpy as np
open(LOG, "a").write("x")
def compute_score(solution_str):
    if solution_str == "hang":
        while True: pass
    if solution_str == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if solution_str == "child":
        subprocess.Popen(["sleep", "1000000"]); time.sleep(10**6)
    return {"score": 1, "parent": os.getppid(), "drawn": random.random(), "drawn_np": float(np.random.rand())}
"""

HANG_S = expires(0.3)
"""Seconds of its own that a row may take; one that ends at once needs a small part of them."""


@pytest.fixture
def pool() -> Iterator[RulePool]:
    with RulePool(2) as made:
        yield made


def write(folder: Path, extra: str = "") -> tuple[Path, Path]:
    """(the rule, a file with one x for each time it was imported)."""
    path, log = folder / "rule.py", folder / "imports"
    path.write_text(f"LOG = {str(log)!r}\n{extra}{RULE}", encoding="utf-8")
    return path, log


def score(
    pool: RulePool, path: Path, *responses: str, timeout_s: float = HANG_S
) -> list[ScoreResult]:
    items = [
        ScoreItem(prompt_id=str(i), messages=(), response=text, rm_prompt="")
        for i, text in enumerate(responses)
    ]
    return asyncio.run(
        RuleReward("mine", FunctionSource(str(path)), pool=pool, timeout_s=timeout_s).score(items)
    )


def nursery_of(pool: RulePool, path: Path) -> psutil.Process:
    """Cost the pool workers until their successors are forked; the process that forks them."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        score(pool, path, "hang", "hang")
        parents = {
            r.extra["parent"]
            for r in score(pool, path, *["fine"] * 4, timeout_s=PATIENCE_S)
            if r.value is not None
        }
        if parents - {os.getpid()}:
            return psutil.Process((parents - {os.getpid()}).pop())
    raise AssertionError("no worker was forked")


def test_hangs_are_followed_by_forked_workers_that_import_nothing(
    pool: RulePool, tmp_path: Path
) -> None:
    path, log = write(tmp_path)
    score(pool, path, "fine")
    nursery = nursery_of(pool, path)
    imports = len(log.read_text())
    assert [r.status for r in score(pool, path, *["hang"] * 8)] == ["timeout"] * 8
    statuses = [r.status for r in score(pool, path, *["hang", "fine"] * 2, timeout_s=HANG_S)]
    assert statuses == ["timeout", "ok"] * 2
    assert len(log.read_text()) == imports
    assert len(pool.process_ids()) <= 2
    forked = score(pool, path, "fine", timeout_s=PATIENCE_S)[0]
    assert forked.extra["parent"] == nursery.pid
    drawn: list[dict[str, Any]] = []
    for _ in range(3):
        score(pool, path, "hang", "hang")
        drawn.append(dict(score(pool, path, "fine", timeout_s=PATIENCE_S)[0].extra))
    assert len({each["drawn"] for each in drawn}) == len({each["drawn_np"] for each in drawn}) == 3


def test_a_forked_worker_is_killed_with_its_children_and_reports_how_it_died(
    pool: RulePool, tmp_path: Path
) -> None:
    path, _ = write(tmp_path)
    nursery = nursery_of(pool, path)
    [crashed] = score(pool, path, "crash", timeout_s=PATIENCE_S)
    assert crashed.status == "worker_lost"
    assert "its process died of SIGSEGV, twice" in crashed.detail
    before = {p.pid for p in sleepers()}
    assert score(pool, path, "child", timeout_s=expires(1.0))[0].status == "timeout"
    assert wait_until(lambda: {p.pid for p in sleepers()} - before == set())
    assert wait_until(lambda: none_left_behind(pool, nursery))


def test_a_worker_that_ends_later_than_it_is_waited_for_leaves_no_zombie(
    pool: RulePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = write(tmp_path)
    nursery = nursery_of(pool, path)
    monkeypatch.setattr(worker_process, "KILL_WAIT_S", 0.0)
    for _ in range(5):
        assert score(pool, path, "crash", timeout_s=PATIENCE_S)[0].status == "worker_lost"
    assert wait_until(lambda: none_left_behind(pool, nursery))
    assert score(pool, path, "fine", timeout_s=PATIENCE_S)[0].status == "ok"


def test_an_answer_that_came_before_a_reaped_worker_is_waited_for_once(tmp_path: Path) -> None:
    sources: list[FunctionSource] = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        sources.append(FunctionSource(str(write(tmp_path / name)[0])))
    nursery = Nursery()
    try:
        nursery.request(sources[0])
        select.select([nursery.channel], [], [])
        nursery.receive()
        parent_end, worker_end = socket.socketpair()
        with parent_end, worker_end:
            worker = nursery.fork(worker_end, 1)
        os.kill(worker.pid, signal.SIGKILL)
        assert wait_until(worker.ended)
        nursery.request(sources[1])
        assert worker.wait() == -signal.SIGKILL
        nursery.receive()
        assert nursery.ready == set(sources)
    finally:
        nursery.kill()


def test_a_process_that_leads_no_group_yet_is_killed():
    process = subprocess.Popen(["sleep", "1000000"])
    worker_process.kill_group(process.pid)
    assert process.wait(PATIENCE_S) == -signal.SIGKILL


def sleepers() -> list[psutil.Process]:
    return [
        p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "1000000"]
    ]


def none_left_behind(pool: RulePool, nursery: psutil.Process) -> bool:
    """Whether every worker that was forked serves the pool: none is dying, none a zombie."""
    return {child.pid for child in nursery.children()} <= set(pool.process_ids())


def test_the_pool_outlives_its_nursery(pool: RulePool, tmp_path: Path) -> None:
    path, _ = write(tmp_path)
    nursery = nursery_of(pool, path)
    os.kill(nursery.pid, signal.SIGKILL)
    assert [r.status for r in score(pool, path, *["fine"] * 8, timeout_s=PATIENCE_S)] == ["ok"] * 8
    results = score(pool, path, "hang", "fine", "hang", "fine", timeout_s=HANG_S)
    assert [r.status for r in results] == ["timeout", "ok", "timeout", "ok"]
    # a worker of the dead nursery may still answer; once both have hung, none is left
    end = time.monotonic() + PATIENCE_S
    parents: set[int] = set()
    while parents != {os.getpid()} and time.monotonic() < end:
        score(pool, path, "hang", "hang")
        answers = score(pool, path, *["fine"] * 4, timeout_s=PATIENCE_S)
        parents = {r.extra["parent"] for r in answers if r.value is not None}
    assert parents == {os.getpid()}


def test_closing_leaves_nothing(tmp_path: Path) -> None:
    path, _ = write(tmp_path)
    pool = RulePool(2)
    nursery = nursery_of(pool, path)
    family = [nursery, *nursery.children()]
    pool.close()
    assert wait_until(
        lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family)
    )


@pytest.mark.parametrize(
    "extra",
    [
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,),"
        " daemon=True).start()\n"
    ],
)
def test_a_rule_with_threads_is_never_forked(pool: RulePool, tmp_path: Path, extra: str) -> None:
    path, log = write(tmp_path, extra)
    assert [r.status for r in score(pool, path, *["hang"] * 6)] == ["timeout"] * 6
    results = score(pool, path, *["fine"] * 4, timeout_s=PATIENCE_S)
    assert {r.extra["parent"] for r in results} == {os.getpid()}
    assert len(log.read_text()) >= 6


def test_an_import_that_works_once_only_keeps_its_own_error(pool: RulePool, tmp_path: Path) -> None:
    """The nursery's import is its own affair: a worker that is started afresh says what it sees."""
    path, _ = write(
        tmp_path,
        "import sys\nif 'rmrl.rewards.kinds.rule.fork_server' in sys.modules:"
        f" sys.exit({sys.maxsize})\n",
    )
    assert [r.status for r in score(pool, path, *["hang"] * 3)] == ["timeout"] * 3
    assert [r.status for r in score(pool, path, "fine", timeout_s=PATIENCE_S)] == ["ok"]

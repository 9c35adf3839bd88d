"""Deadlines of rules: a hang is ended and costs its own row only; what a machine holds up does
not."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from rmrl.rewards.dropins.dropin import load_dropin
from rmrl.rewards.kinds.rule import pool as pool_module
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.rule.reward import RuleReward
from tests.patience import PATIENCE_S, expires
from tests.rewards.kinds.rule.rule_parts import (
    SHIPPED,
    WAITS_FOR,
    alive,
    items,
    on_linux,
    one_call,
    score,
    state,
    statuses,
    wait_until,
)


@pytest.mark.parametrize("way", ["loop", "sleep", "regex", "fork", "socket", "bomb"])
def test_a_hang_is_ended_and_costs_its_own_row_only(pool, ways, way):
    score(pool, ways, items("length", "length"))
    results = score(
        pool, ways, items(*["length"] * 20, way, *["length"] * 20), timeout_s=expires(0.3)
    )
    assert statuses(results) == ["ok"] * 20 + ["timeout"] + ["ok"] * 20
    assert "ran for more than 0.3 s and was killed" in results[20].detail


@on_linux
def test_a_worker_that_is_stopped_for_longer_than_the_deadline_times_nothing_out(ways, tmp_path):
    gate = tmp_path / "gate"
    with RulePool(1) as pool:
        assert score(pool, ways, items("length"))[0].status == "ok"
        (pid,) = pool.process_ids()
        future = one_call(pool, ways, "stop", expires(0.5), str(gate))
        assert wait_until(lambda: state(pid) == "T")
        time.sleep(1.5)  # three deadlines
        assert not future.done()
        gate.touch()
        os.kill(pid, signal.SIGCONT)
        assert wait_until(future.done)
        (result,) = future.result()
        assert (result.status, result.value) == ("ok", 1.0)
        assert result.latency_s > 1.5  # by the clock
        assert pool.process_ids() == [pid]


def test_a_pause_of_the_whole_machine_times_nothing_out(tmp_path, monkeypatch):
    """The watcher's clock goes on by a quarter of an hour while a call waits for something."""
    path, log, gate = tmp_path / "waits.py", tmp_path / "log", tmp_path / "gate"
    path.write_text(WAITS_FOR, encoding="utf-8")
    clock = Clock()
    monkeypatch.setattr(pool_module, "time", clock)
    with RulePool(1) as pool:
        future = one_call(pool, path, str(gate), PATIENCE_S, str(log))
        assert wait_until(log.exists)
        clock.paused_s = 900.0
        seen = clock.readings
        assert wait_until(lambda: clock.readings > seen + 4)
        assert not future.done()
        gate.touch()
        assert future.result(PATIENCE_S)[0].status == "ok"


class Clock:
    """The module `time` with pauses of the machine."""

    def __init__(self) -> None:
        self.paused_s = 0.0
        self.readings = 0

    def monotonic(self) -> float:
        self.readings += 1
        return time.monotonic() + self.paused_s

    sleep = staticmethod(time.sleep)


def test_a_kill_reaches_what_the_rule_started(pool, tmp_path):
    path, note = tmp_path / "starts.py", tmp_path / "pid"
    path.write_text(
        "import pathlib, subprocess\ndef compute_score(solution_str):\n    child ="
        " subprocess.Popen(['sleep', '1000000'])\n   "
        " pathlib.Path(solution_str).write_text(str(child.pid))\n    child.wait()\n",
        encoding="utf-8",
    )
    (result,) = score(pool, path, items(str(note)), timeout_s=expires(2.0))
    assert result.status == "timeout"
    assert wait_until(lambda: not alive(int(note.read_text(encoding="utf-8"))))


def test_queueing_is_never_a_time_out(pool, tmp_path):
    path = tmp_path / "slow.py"
    path.write_text(
        "import time\ndef compute_score(solution_str):\n    time.sleep(0.1)\n    return 1\n",
        encoding="utf-8",
    )
    started = time.monotonic()
    results = score(
        pool, path, items(*["x"] * 20), timeout_s=expires(0.6)
    )  # 2 s of work for 2 workers
    seconds = time.monotonic() - started
    assert statuses(results) == ["ok"] * 20
    assert min(r.latency_s for r in results) >= 0.1
    # Two at a time and one behind another: with its turn a call took no longer than the whole.
    assert sum(r.latency_s for r in results) <= 2 * seconds


def test_a_slow_import_does_not_count(pool, tmp_path):
    path = tmp_path / "slow_import.py"
    path.write_text(
        "import time\ntime.sleep(0.5)\ndef compute_score(solution_str):\n    return 1\n",
        encoding="utf-8",
    )
    assert score(pool, path, items("x"), timeout_s=expires(0.2))[0].status == "ok"


HANGS = """import re
def compute_score(solution_str):
    if solution_str == "regex":
        return re.match(r"(a+)+$", "a" * 40 + "b")
    while solution_str == "loop":
        pass
    return 1
"""


def test_many_hanging_inputs_leave_the_pool_alive(tmp_path):
    """Every third input is a good one."""
    path = tmp_path / "hangs.py"
    path.write_text(HANGS, encoding="utf-8")
    with RulePool(2) as pool:
        score(pool, path, items("fine", "fine"))
        results = score(pool, path, items(*["loop", "fine", "regex"] * 10), timeout_s=expires(0.05))
        assert statuses(results) == ["timeout", "ok", "timeout"] * 10
        assert score(pool, path, items("fine"))[0].value == 1.0
        assert len(pool.process_ids()) <= 2


def test_sympy_that_never_ends_is_a_time_out(pool):
    source = load_dropin(SHIPPED / "math_verify.py", "math_verify").source
    reward = RuleReward("math_verify", source, pool=pool, timeout_s=expires(2.0))
    rows = items("$\\boxed{\\frac{14}{2}}$", "$\\boxed{9^{9^{9^{9}}}}$", "$\\boxed{8}$", truth="7")
    results = asyncio.run(reward.score(rows))
    assert statuses(results) == ["ok", "timeout", "ok"]
    assert [r.value for r in results] == [1.0, None, 0.0]

"""Rules in their pool: every way a function can misbehave costs its own row, in bounded time, and
nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmrl.errors import EngineLostError, RewardFunctionError
from rmrl.rewards.dropins.dropin import FunctionSource, load_dropin
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.rule.reward import RuleReward, call_of
from rmrl.types import Conversation, ScoreItem, ScoreResult
from tests.patience import PATIENCE_S
from tests.rewards.kinds.rule.rule_parts import (
    EVERY_WAY,
    SHIPPED,
    WAITS_FOR,
    alive,
    items,
    one_call,
    score,
    wait_until,
)


@pytest.mark.parametrize(
    ("way", "value"),
    [
        ("length", 4.0),
        ("bool", 1.0),
        ("float32", 0.5),
        ("bool_", 1.0),
        ("array0", 0.25),
        ("stdout", 1.0),
    ],
)
def test_numbers_are_scores(pool, ways, way, value):
    (result,) = score(pool, ways, items(way))
    assert (result.status, result.value, result.detail) == ("ok", value, "")


@pytest.mark.parametrize(
    ("way", "status", "part"),
    [
        ("none", "unparseable", "returned None"),
        ("nan", "user_error", "returned nan;"),
        ("inf", "user_error", "returned -inf"),
        ("huge", "user_error", "OverflowError"),
        ("string", "user_error", "returned '0.5' (str); a score is a number"),
        ("array2", "user_error", "(ndarray); a score is a number"),
        ("list", "user_error", "(list); a score is"),
        ("no_score", "user_error", "a dict without 'score' (keys: value)"),
        ("long_int", "user_error", "ValueError"),
        ("raise", "user_error", "compute_score raised KeyError: 'no such answer'"),
        ("exit", "user_error", "SystemExit: 1"),
        ("no such way", "user_error", "KeyError: 'no such way'"),
    ],
)
def test_anything_else_is_no_verdict(pool, ways, way, status, part):
    (result,) = score(pool, ways, items(way))
    assert (result.status, result.value) == (status, None)
    assert part in result.detail


def test_none_may_mean_that_a_rule_is_not_meant_for_a_response(pool, ways):
    """As in TRL, where None adds nothing. What failed is no less a failure."""
    source = FunctionSource(str(ways))
    kind = RuleReward("mine", source, pool=pool, timeout_s=PATIENCE_S, none="skipped")
    results = asyncio.run(kind.score(items("none", "length", "nan", "dict_none")))
    assert [result.status for result in results] == ["skipped", "ok", "user_error", "skipped"]
    assert results[0].detail == "the rule returned None: it does not apply to this response"
    assert [result.value for result in results] == [None, 4.0, None, None]


def test_an_exception_names_file_line_and_function(pool, ways):
    (result,) = score(pool, ways, items("raise"))
    line = EVERY_WAY.splitlines().index('    raise KeyError("no such answer")') + 1
    assert f'{ways}:{line} in deep: raise KeyError("no such answer")' in result.detail


def test_extra_columns_become_plain_data(pool, ways):
    full, unsure = score(pool, ways, items("dict", "dict_none"))
    assert full.value == 2.0
    assert full.extra == {"parsed": "four", "a": [0, 1], "n": 0.5, "o": {"1": [None, True]}}
    assert (unsure.status, unsure.extra) == ("unparseable", {"why": "unsure"})


@pytest.mark.parametrize(
    ("way", "how"), [("os_exit", "ended with exit code 3"), ("segv", "died of SIGSEGV")]
)
def test_a_crash_is_tried_twice_and_costs_its_own_row_only(pool, ways, way, how):
    results = score(pool, ways, items("length", way, "length", "length"))
    assert [r.status for r in results] == ["ok", "worker_lost", "ok", "ok"]
    assert f"its process {how}, twice" in results[1].detail


def test_a_crash_that_does_not_happen_again_is_a_score(pool, tmp_path):
    path = tmp_path / "once.py"
    path.write_text(
        "import os\ndef compute_score(solution_str):\n    if not os.path.exists(solution_str):\n"
        "        open(solution_str, 'w').close()\n        os._exit(1)\n    return 7\n",
        encoding="utf-8",
    )
    (result,) = score(pool, path, items(str(tmp_path / "flag")))
    assert (result.status, result.value) == ("ok", 7.0)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("raise ImportError('no cake')", "ImportError: no cake"),
        ("import os\nos._exit(5)", "the process ended with exit code 5"),
        ("def compute_score(labels): ...", "needs labels"),
    ],
)
def test_a_function_that_cannot_be_imported_is_an_error(pool, tmp_path, text, part):
    path = tmp_path / "broken.py"
    path.write_text(text + "\n", encoding="utf-8")
    with pytest.raises(RewardFunctionError, match=part):
        score(pool, path, items("a", "b", "c"))


def test_shipped_gsm8k(pool):
    reward = RuleReward(
        "gsm8k", load_dropin(SHIPPED / "gsm8k.py", "gsm8k").source, pool=pool, timeout_s=PATIENCE_S
    )
    rows = items(*[f"so\n#### {i % 4}" for i in range(1024)], truth="3")
    results = asyncio.run(reward.score(rows))
    assert [r.value for r in results] == [0.0, 0.0, 0.0, 1.0] * 256
    assert results[2].extra == {"answer": "2"}


def test_a_missing_reference_is_no_verdict(pool):
    source = load_dropin(SHIPPED / "gsm8k.py", "gsm8k").source
    (result,) = asyncio.run(
        RuleReward("gsm8k", source, pool=pool, timeout_s=PATIENCE_S).score(
            items("#### 1", truth="")
        )
    )
    assert result.status == "user_error"
    assert "holds no number" in result.detail


def test_workers_inherit_no_framework_and_no_main(tmp_path):
    path = tmp_path / "modules.py"
    text = "import sys\nNAMES = ('torch', 'ray', 'vllm', 'transformers', 'numpy', '__mp_main__')\n"
    text += (
        "def compute_score(solution_str):\n    return {'score': 1, 'seen': [n for n in NAMES if n"
        " in sys.modules]}\n"
    )
    path.write_text(text, encoding="utf-8")
    with RulePool(1) as fresh:
        assert score(fresh, path, items("x"))[0].extra == {"seen": []}


def test_editing_the_file_during_a_run_changes_nothing(pool, tmp_path):
    path = tmp_path / "edited.py"
    path.write_text("def compute_score(solution_str):\n    return 1\n", encoding="utf-8")
    reward = RuleReward("edited", FunctionSource(str(path)), pool=pool, timeout_s=PATIENCE_S)
    path.write_text("def compute_score(solution_str):\n    return 2\n", encoding="utf-8")
    assert asyncio.run(reward.score(items("x")))[0].value == 1.0


def test_columns_reach_the_rule(pool, tmp_path):
    path = tmp_path / "columns.py"
    path.write_text(
        "def compute_score(solution_str, **columns):\n    return {'score': 1, **columns}\n",
        encoding="utf-8",
    )
    item = ScoreItem(
        prompt_id="0",
        messages=(),
        response="r",
        rm_prompt="",
        ground_truth="g",
        data_source="d",
        extra_info={"k": [1]},
    )
    reward = RuleReward("columns", FunctionSource(str(path)), pool=pool, timeout_s=PATIENCE_S)
    assert asyncio.run(reward.score([item]))[0].extra == {
        "data_source": "d",
        "ground_truth": "g",
        "extra_info": {"k": [1]},
    }


def test_rules_share_the_pool_and_a_slow_one_does_not_hold_up_a_fast_one(pool, tmp_path):
    """The slow one's calls, but for the first two, wait until the fast one has answered."""
    waits, opens = tmp_path / "waits.py", tmp_path / "opens.py"
    waits.write_text(WAITS_FOR, encoding="utf-8")
    opens.write_text(
        "def compute_score(solution_str):\n    open(solution_str, 'w').close()\n    return 1\n",
        encoding="utf-8",
    )
    first, rest = str(tmp_path / "first"), str(tmp_path / "rest")
    slow = RuleReward("slow", FunctionSource(str(waits)), pool=pool, timeout_s=PATIENCE_S)
    fast = RuleReward("fast", FunctionSource(str(opens)), pool=pool, timeout_s=PATIENCE_S)

    async def both() -> list[list[ScoreResult]]:
        behind = items(first, first, *[rest] * 28, truth=str(tmp_path / "log"))
        running = asyncio.create_task(slow.score(behind))
        await asyncio.sleep(0)
        quick = asyncio.create_task(fast.score(items(rest)))
        await asyncio.sleep(0)
        Path(first).touch()
        return await asyncio.gather(running, quick)

    scores = asyncio.run(both())
    assert [[r.status for r in results] for results in scores] == [["ok"] * 30, ["ok"]]


def test_cancelling_drops_the_calls_not_yet_sent(tmp_path):
    path, log, gate, after = (tmp_path / name for name in ("waits.py", "log", "gate", "after"))
    path.write_text(WAITS_FOR, encoding="utf-8")
    after.touch()

    async def cancel(reward: RuleReward) -> None:
        running = asyncio.create_task(reward.score(items(*[str(gate)] * 100, truth=str(log))))
        await asyncio.to_thread(wait_until, log.exists)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        await asyncio.sleep(0)
        gate.touch()
        await reward.score(items(str(after), truth=str(log)))

    with RulePool(1) as pool:
        asyncio.run(
            cancel(RuleReward("slow", FunctionSource(str(path)), pool=pool, timeout_s=PATIENCE_S))
        )
    assert log.read_text(encoding="utf-8").split() == ["gate", "after"]


def test_nothing_to_score_starts_nothing(ways):
    pool = RulePool(2)
    assert score(pool, ways, []) == []
    assert pool.process_ids() == []


def test_a_closed_pool_has_no_processes_ends_open_calls_and_starts_again(ways):
    pool = RulePool(2)
    score(pool, ways, items("length", "length"))
    pids = pool.process_ids()
    assert pids
    assert all(alive(p) for p in pids)
    future = one_call(pool, ways, "sleep", 10**6)
    time.sleep(0.2)
    pool.close()
    with pytest.raises(EngineLostError, match="closed"):
        future.result(PATIENCE_S)
    assert wait_until(lambda: not any(alive(p) for p in pids))
    assert score(pool, ways, items("length"))[0].value == 4.0
    pool.close()


def test_an_idle_worker_that_is_killed_is_replaced(pool, ways):
    score(pool, ways, items("length", "length"))
    for pid in pool.process_ids():
        os.kill(pid, signal.SIGKILL)
    assert [r.value for r in score(pool, ways, items("length", "length"))] == [4.0, 4.0]


SCRIPT = """
import asyncio, sys
from rmrl.rewards.dropins.dropin import FunctionSource
from rmrl.rewards.kinds.rule.reward import RuleReward
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.types import ScoreItem
print("main runs", flush=True)
pool = RulePool(2)
reward = RuleReward("mine", FunctionSource(sys.argv[1]), pool=pool, timeout_s=100.0)
item = lambda r: ScoreItem(prompt_id="0", messages=(), response=r, rm_prompt="", ground_truth="four")
print(asyncio.run(reward.score([item("length")]))[0].value, *pool.process_ids(), flush=True)
if sys.argv[2] == "hang":
    asyncio.run(reward.score([item("regex")]))
"""


def run_script(ways: Path, what: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(SHIPPED.parent)}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(ways), what],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_a_script_without_a_main_guard_works_and_leaves_nothing(ways):
    process = run_script(ways, "end")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    head, line = output.splitlines()  # one "main runs": the script is not imported again
    assert (head, line.split()[0]) == ("main runs", "4.0")
    assert wait_until(lambda: not any(alive(int(p)) for p in line.split()[1:]))


def test_workers_die_with_a_parent_that_is_killed(ways):
    process = run_script(ways, "hang")
    assert process.stdout is not None
    process.stdout.readline()
    pids = [int(p) for p in process.stdout.readline().split()[1:]]
    time.sleep(0.3)  # the worker is inside a regular expression and holds the interpreter's lock
    assert pids
    assert all(alive(p) for p in pids)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert wait_until(lambda: not any(alive(p) for p in pids))


def test_settings_that_cannot_work_are_refused(pool, ways):
    with pytest.raises(ValueError, match="at least 1 worker, not 0"):
        RulePool(0)
    with pytest.raises(ValueError, match="timeout_s is 0"):
        RuleReward("mine", FunctionSource(str(ways)), pool=pool, timeout_s=0)


SYSTEM = {"role": "system", "content": "s"}
QUESTION = {"role": "user", "content": "q"}
CALL = {"role": "assistant", "content": "a"}
RESULT = {"role": "tool", "content": "r"}
TURNS: dict[str, tuple[list[dict[str, str]], int]] = {
    "a reply": ([CALL], 2),
    "a call, its results, a reply": ([CALL, RESULT, RESULT, CALL], 4),
    "two calls in a row": ([CALL, CALL, RESULT], 4),
    "nothing yet": ([], 1),
}
"""The response's turns -> verl's `num_turns` (user turns + assistant turns + 1)."""


@pytest.mark.parametrize("name", TURNS)
def test_a_rule_gets_the_number_of_turns_as_in_verl(name: str) -> None:
    turns, count = TURNS[name]
    talk = Conversation(messages=(SYSTEM, QUESTION, *turns), first=2)
    item = ScoreItem(prompt_id="0", messages=(SYSTEM, QUESTION), response="a", rm_prompt="")
    call = call_of(dataclasses.replace(item, conversation=talk))
    assert (call["num_turns"], call["extra_info"]) == (count, {"num_turns": count})
    own = dataclasses.replace(item, conversation=talk, extra_info={"num_turns": 9})
    assert call_of(own)["extra_info"] == {"num_turns": 9}
    assert (call_of(item)["num_turns"], call_of(item)["extra_info"]) == (2, {})

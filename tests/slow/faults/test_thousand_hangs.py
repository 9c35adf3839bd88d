"""A thousand responses that hang sympy or a regular expression: each costs its own row, and the
pool is as good as before."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import psutil
import pytest

from rmrl.rewards.kinds.rule import RuleReward
from rmrl.rewards.rules.dropin import FunctionSource, load_dropin
from rmrl.rewards.rules.pool import RulePool
from rmrl.types import ScoreItem, ScoreResult

pytestmark = [pytest.mark.alone, pytest.mark.timeout(900)]

SHIPPED = Path(__file__).parents[3] / "reward_functions"
WORKERS, TIMEOUT_S = 4, 0.2
REGEX = """import re
def compute_score(solution_str, ground_truth):
    return float(re.fullmatch(r"(a+)+", solution_str) is not None)
"""
CATASTROPHE = "a" * 40 + "b"
TOWER = "$\\boxed{9^{9^{9^{9}}}}$"
GOOD = ("$\\boxed{\\frac{14}{2}}$", 1.0), ("$\\boxed{8}$", 0.0)


def items(texts: list[str], truth: str = "7") -> list[ScoreItem]:
    return [
        ScoreItem(prompt_id=str(i), messages=(), response=t, rm_prompt="", ground_truth=truth)
        for i, t in enumerate(texts)
    ]


def reward(pool: RulePool, source: FunctionSource, timeout_s: float = TIMEOUT_S) -> RuleReward:
    return RuleReward("mine", source, pool=pool, timeout_s=timeout_s)


def sources(folder: Path) -> tuple[FunctionSource, FunctionSource]:
    path = folder / "matches.py"
    path.write_text(REGEX, encoding="utf-8")
    math = load_dropin(SHIPPED / "math_verify.py", "math_verify").source
    assert math is not None
    return math, FunctionSource(str(path))


async def both(
    pool: RulePool, sympy: RuleReward, regex: RuleReward
) -> tuple[list[ScoreResult], list[ScoreResult]]:
    """500 hangs of each, good ones among them."""
    formulas = [TOWER if i % 5 else GOOD[i // 5 % 2][0] for i in range(625)]
    words = [CATASTROPHE if i % 5 else "a" * 40 for i in range(625)]
    return tuple(await asyncio.gather(sympy.score(items(formulas)), regex.score(items(words))))  # type: ignore[return-value]


def settled(before: set[psutil.Process], seconds: float = 30.0) -> bool:
    """Whether there are, within that time, no more processes than the workers and the one that
    forks them."""
    end = time.monotonic() + seconds
    while not (fine := _few(before)) and time.monotonic() < end:
        time.sleep(0.1)
    return fine


def _few(before: set[psutil.Process]) -> bool:
    family = set(psutil.Process().children(recursive=True)) - before
    return len(family) <= WORKERS + 1 and all(p.status() != psutil.STATUS_ZOMBIE for p in family)


def test_a_thousand_hangs(tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    math, match = sources(tmp_path)
    with RulePool(WORKERS) as pool:
        warm = asyncio.run(
            reward(pool, math, 60.0).score(items([text for text, _ in GOOD] * WORKERS))
        )
        assert [r.value for r in warm] == [value for _, value in GOOD] * WORKERS
        started = time.monotonic()
        formulas, words = asyncio.run(both(pool, reward(pool, math), reward(pool, match)))
        seconds = time.monotonic() - started
        hung = [r for i, r in enumerate([*formulas, *words]) if i % 5]
        assert len(hung) == 1000
        assert {r.status for r in hung} == {"timeout"}
        assert {r.value for r in hung} == {None}
        assert all("ran for more than 0.2 s and was killed" in r.detail for r in hung)
        # Beside four hogs on a few busy cores a good one may not get its millisecond within 0.2 s;
        # queueing never counts.
        told = [(r, GOOD[i % 2][1]) for i, r in enumerate(formulas[::5])] + [
            (r, 1.0) for r in words[::5]
        ]
        late = [r for r, _ in told if r.status == "timeout"]
        assert all(r.value == value for r, value in told if r.status == "ok")
        assert len(late) <= len(told) // 10
        assert (
            seconds < 400
            # 1000 * 0.2 s / 4 workers = 50 s, and a fork each; the rest is for what else the machine
            # does
        )
        after = asyncio.run(reward(pool, math, 60.0).score(items([text for text, _ in GOOD] * 20)))
        assert [(r.status, r.value) for r in after] == [("ok", value) for _, value in GOOD] * 20
        assert len(pool.process_ids()) <= WORKERS
        assert settled(before)
    print(f"1000 hangs in {seconds:.0f} s; {len(late)} of {len(told)} good ones were late")


def test_a_long_queue_is_no_time_out(tmp_path: Path) -> None:
    """300 calls of 20 ms behind one worker: the last waits 6 s for its turn, six times its
    deadline."""
    path = tmp_path / "slow.py"
    path.write_text(
        "import time\ndef compute_score(solution_str):\n    time.sleep(0.02)\n    return 1\n",
        encoding="utf-8",
    )
    with RulePool(1) as pool:
        results = asyncio.run(
            reward(pool, FunctionSource(str(path)), 1.0).score(items(["x"] * 300))
        )
    assert [r.status for r in results] == ["ok"] * 300
    assert max(r.latency_s for r in results) < 1.0

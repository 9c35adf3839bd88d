"""Hundreds of responses that hang sympy or a regular expression: each costs its own row, and the
pool is as good as before."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import psutil
import pytest

from rmrl.rewards.dropins.dropin import FunctionSource, load_dropin
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.rule.reward import RuleReward
from rmrl.types import ScoreItem, ScoreResult
from tests.patience import PATIENCE_S, expires

pytestmark = pytest.mark.timeout(1800)

SHIPPED = Path(__file__).parents[3] / "reward_functions"
WORKERS, TIMEOUT_S = 4, expires(0.2)
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
    sympy: RuleReward, regex: RuleReward, rows: int
) -> tuple[list[ScoreResult], list[ScoreResult]]:
    """That many rows of each; four of five hang."""
    formulas = [TOWER if i % 5 else GOOD[i // 5 % 2][0] for i in range(rows)]
    words = [CATASTROPHE if i % 5 else "a" * 40 for i in range(rows)]
    scored = await asyncio.gather(sympy.score(items(formulas)), regex.score(items(words)))
    return scored[0], scored[1]


def settled(before: set[psutil.Process]) -> bool:
    """Whether there are, in the end, no more processes than the workers and the one that forks
    them."""
    end = time.monotonic() + PATIENCE_S
    while not (fine := _few(before)) and time.monotonic() < end:
        time.sleep(0.1)
    return fine


def _few(before: set[psutil.Process]) -> bool:
    family = set(psutil.Process().children(recursive=True)) - before
    return len(family) <= WORKERS + 1 and all(p.status() != psutil.STATUS_ZOMBIE for p in family)


@pytest.mark.parametrize(
    "hangs", [200, pytest.param(1000, marks=pytest.mark.nightly, id="a thousand")]
)
def test_many_hangs(tmp_path: Path, hangs: int) -> None:
    before = set(psutil.Process().children(recursive=True))
    math, match = sources(tmp_path)
    with RulePool(WORKERS) as pool:
        warm = asyncio.run(
            reward(pool, math, PATIENCE_S).score(items([text for text, _ in GOOD] * WORKERS))
        )
        assert [r.value for r in warm] == [value for _, value in GOOD] * WORKERS
        formulas, words = asyncio.run(
            both(reward(pool, math), reward(pool, match), rows=hangs // 2 * 5 // 4)
        )
        hung = [r for i, r in enumerate([*formulas, *words]) if i % 5]
        assert len(hung) == hangs
        assert {r.status for r in hung} == {"timeout"}
        assert {r.value for r in hung} == {None}
        assert all("ran for more than 0.2 s and was killed" in r.detail for r in hung)
        # Beside four hogs on a few busy cores a good one may wait long for its millisecond; neither
        # that nor queueing counts.
        good = [*formulas[::5], *words[::5]]
        values = [GOOD[i % 2][1] for i in range(len(formulas[::5]))] + [1.0] * len(words[::5])
        assert [(r.status, r.value) for r in good] == [("ok", value) for value in values]
        after = asyncio.run(
            reward(pool, math, PATIENCE_S).score(items([text for text, _ in GOOD] * 20))
        )
        assert [(r.status, r.value) for r in after] == [("ok", value) for _, value in GOOD] * 20
        assert len(pool.process_ids()) <= WORKERS
        assert settled(before)


def test_a_long_queue_is_no_time_out(tmp_path: Path) -> None:
    """100 calls of 20 ms behind one worker: the last waits 2 s for its turn, four times its
    deadline."""
    path = tmp_path / "slow.py"
    path.write_text(
        "import time\ndef compute_score(solution_str):\n    time.sleep(0.02)\n    return 1\n",
        encoding="utf-8",
    )
    with RulePool(1) as pool:
        started = time.monotonic()
        results = asyncio.run(
            reward(pool, FunctionSource(str(path)), expires(0.5)).score(items(["x"] * 100))
        )
        seconds = time.monotonic() - started
    assert [r.status for r in results] == ["ok"] * 100
    # One behind another: with its turn a call took no longer than the whole.
    assert sum(r.latency_s for r in results) <= seconds

"""Times that should not grow, each the best of five: `python -m benchmarks.bounds`.

No test bounds a wall clock, since a machine may stand still. These bounds are for a machine that has
little else to do; the status is 1 where the best time is over one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmrl.rewards.dropins.dropin import FunctionSource, load_dropin
from rmrl.rewards.kinds.code.extract import code_block, fenced_blocks
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.rule.reward import RuleReward
from rmrl.telemetry.at_k import win_shares
from rmrl.types import ScoreItem

TIMES = 5
SHIPPED = Path(__file__).resolve().parent.parent / "reward_functions"


@dataclass(frozen=True, slots=True)
class Bound:
    """A measurement that returns seconds, and the most that they may be."""

    name: str
    measure: Callable[[], float]
    limit_s: float


def seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def best(bound: Bound) -> float:
    """Return the best of some times; the first that is within the bound will do."""
    fastest = float("inf")
    for _ in range(TIMES):
        fastest = min(fastest, bound.measure())
        if fastest < bound.limit_s:
            break
    return fastest


def run(bounds: Sequence[Bound], record: Path | None = None) -> int:
    """Measure and print. Returns 1 where a best time is over its bound."""
    status = 0
    for bound in bounds:
        seconds = best(bound)
        print(f"{seconds:8.3f} s, at most {bound.limit_s} s: {bound.name}")
        if seconds >= bound.limit_s:
            status = 1
        if record is not None:
            with record.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"name": bound.name, "seconds": seconds}) + "\n")
    return status


# --- what is measured

HANGS = """
def compute_score(solution_str):
    while solution_str == "loop":
        pass
    return 1
"""
FENCES = (
    "```\n" * 50_000 + "`" * 200_000 + "\n" + "~~~ ``` {" * 50_000,
    "```python\nx = '''\n" + "```\n" * 100_000 + "'''",
    "```python\nx = '''\n```\n" * 30_000,
    "```python\n" + '"\\"' * 100_000 + "\n" + "a```b" * 50_000,
)


def items(responses: Sequence[str]) -> list[ScoreItem]:
    """Return rows to be scored."""
    rows: list[ScoreItem] = []
    for i, response in enumerate(responses):
        row = ScoreItem(
            prompt_id=str(i), messages=(), response=response, rm_prompt="", ground_truth="3"
        )
        rows.append(row)
    return rows


def scored(source: FunctionSource, responses: Sequence[str], *, timeout_s: float) -> float:
    """Return the seconds in which a pool of two workers that has started scores responses."""
    with RulePool(2) as pool:
        reward = RuleReward("measured", source, pool=pool, timeout_s=timeout_s)
        asyncio.run(reward.score(items(["so\n#### 3"] * 64)))
        return seconds_of(lambda: asyncio.run(reward.score(items(responses))))


def gsm8k() -> float:
    """Return the seconds of 1,024 rows of a shipped rule."""
    source = load_dropin(SHIPPED / "gsm8k.py", "gsm8k").source
    return scored(source, [f"so\n#### {i % 4}" for i in range(1024)], timeout_s=10.0)


def hangs() -> float:
    """Return the seconds of 20 rows that hang for 0.05 s each, beside 10 that do not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hangs.py"
        path.write_text(HANGS, encoding="utf-8")
        return scored(FunctionSource(str(path)), ["loop", "fine", "loop"] * 10, timeout_s=0.05)


def shares() -> float:
    """Return the seconds of 13 answers by 64 responses."""
    return seconds_of(lambda: win_shares((1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 10, 14), 32))


def fences() -> float:
    """Return the seconds of finding code in four long texts made to be slow."""

    def extract() -> None:
        for text in FENCES:
            fenced_blocks(text)
            code_block(text, "python")

    return seconds_of(extract)


BOUNDS = (
    Bound("1,024 rows of gsm8k", gsm8k, 0.2),
    Bound("20 rows that hang for 0.05 s, two at a time", hangs, 15.0),
    Bound("win shares of 64 responses", shares, 1.0),
    Bound("code in four long texts of fences", fences, 3.0),
)


def main() -> int:
    """Run the command. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--record", type=Path, help="file for a JSON line per measurement")
    return run(BOUNDS, parser.parse_args().record)


if __name__ == "__main__":
    sys.exit(main())

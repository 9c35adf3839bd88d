"""Two judges on one checkpoint against one judge that asks the union of their requests, both on one
engine."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks.rewards.rig import (
    FUNCTIONS,
    Sizes,
    Step,
    engine_settings,
    in_turn,
    open_scorer,
    ratios,
    say,
    scored,
    spread,
)
from benchmarks.rewards.solutions import Solutions, relabelled
from rmrl.config.schema import RewardConfig, RewardEngineConfig
from rmrl.rewards.session.items import ResponseRow, score_item
from rmrl.rewards.session.scorer import Scorer

JUDGES = ("copies", "checks", "union")


def config_of(sizes: Sizes) -> RewardConfig:
    """`two` rows go to both judges; rows of the sources `copies` and `checks` to the one that
    stands for both."""
    return RewardConfig(
        models=list(JUDGES),
        specs={name: {"path": sizes.judge} for name in JUDGES},
        by_source={
            "two": {"models": ["copies", "checks"]},
            "copies": {"models": ["union"]},
            "checks": {"models": ["union"]},
        },
        functions_dir=[str(FUNCTIONS)],
        max_missing=1.0,
        engine=RewardEngineConfig(**engine_settings(threads=sizes.threads)),
    )


def as_union(rows: list[ResponseRow]) -> list[ResponseRow]:
    """Every row twice, once for each question."""
    return [*relabelled(rows, "copies"), *relabelled(rows, "checks")]


async def measure(sizes: Sizes, texts: Solutions) -> dict[str, Any]:
    """Seconds of a step with the engine awake, and the ratio two judges / union."""
    seconds: dict[str, list[float]] = {"two": [], "union": []}
    async with open_scorer(config_of(sizes)) as scorer:
        first = await scored(scorer, texts.batch(sizes.items, "two"))
        await scored(scorer, as_union(texts.batch(sizes.items, "two")))
        loads = first.loads
        for number in range(sizes.rounds):
            for side in in_turn(list(seconds), number):
                step = await _step(scorer, side, texts.batch(sizes.items, "two"))
                loads += step.loads
                seconds[side].append(step.wall_s)
            say(
                f"sharing {number + 1}: "
                + ", ".join(f"{side} {values[-1]:.2f} s" for side, values in seconds.items())
            )
        same, tokens = compared_requests(scorer, texts.batch(sizes.items, "two"))
    return {
        "responses": sizes.items,
        "requests": 2 * sizes.items,
        "same_requests": same,
        "tokens_read": tokens,
        "loads": loads,
        "load_s": first.load_s,
        "two_s": spread(seconds["two"]),
        "union_s": spread(seconds["union"]),
        "two_over_union": ratios(seconds["two"], seconds["union"]),
    }


async def _step(scorer: Scorer, side: str, rows: list[ResponseRow]) -> Step:
    return await scored(scorer, rows if side == "two" else as_union(rows))


def compared_requests(scorer: Scorer, rows: list[ResponseRow]) -> tuple[bool, int]:
    """Whether both sides ask the engine the same things, and how many tokens these are."""

    def asked(c: int, responses: list[ResponseRow]) -> Counter[tuple[int, ...]]:
        kind: Any = scorer.kind(c)
        items = [score_item(row, scorer.specs[c]) for row in responses]
        return Counter(read.token_ids for read in kind.kind.render(items))

    two = asked(0, rows) + asked(1, rows)
    union = asked(2, as_union(rows))
    return two == union, sum(len(ids) * count for ids, count in two.items())
